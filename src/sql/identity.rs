//! SQL functions that tell who asks: `current_user()`, `has_role('…')` and `user_attribute('…')`.
//!
//! For the predicates of grants and for everybody's own statements. They are values before a plan leaves the gate, so
//! that no executor needs to know them. Must not tell anything of anybody else.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use portcullis_auth::Principal;

/// The functions, for sessions of `principal`.
pub(crate) fn functions(principal: &Principal) -> Vec<Arc<ScalarUDF>> {
    let name = ScalarValue::Utf8(Some(principal.name().to_owned()));
    let roles = principal.roles().iter().map(|role| (role.clone(), ScalarValue::Boolean(Some(true)))).collect();
    let attributes = principal.attributes().iter();
    let attributes = attributes.map(|(key, value)| (key.clone(), ScalarValue::Utf8(Some(value.clone())))).collect();
    [
        Fact::new(CURRENT_USER, Signature::nullary(Volatility::Stable), Vec::new(), name),
        Fact::new(HAS_ROLE, of_text(), roles, ScalarValue::Boolean(Some(false))),
        Fact::new(USER_ATTRIBUTE, of_text(), attributes, ScalarValue::Utf8(None)),
    ]
    .map(|fact| Arc::new(ScalarUDF::from(fact)))
    .to_vec()
}

fn of_text() -> Signature {
    Signature::string(1, Volatility::Stable)
}

/// A question about the principal: an answer for some texts, and one for all others.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Fact {
    name: &'static str,
    signature: Signature,
    answers: Vec<(String, ScalarValue)>,
    otherwise: ScalarValue,
}

impl Fact {
    fn new(
        name: &'static str,
        signature: Signature,
        answers: Vec<(String, ScalarValue)>,
        otherwise: ScalarValue,
    ) -> Self {
        Self { name, signature, answers, otherwise }
    }

    fn answer(&self, asked: Option<&ScalarValue>) -> Result<ScalarValue, DataFusionError> {
        match asked.map(ScalarValue::try_as_str) {
            None => Ok(self.otherwise.clone()),
            Some(Some(asked)) => {
                let found = self.answers.iter().find(|(key, _)| asked.is_some_and(|asked| asked == key));
                Ok(found.map_or(&self.otherwise, |(_, answer)| answer).clone())
            }
            Some(None) => Err(self.not_one_text()),
        }
    }

    fn not_one_text(&self) -> DataFusionError {
        DataFusionError::Plan(format!("{} takes one text, which is not that of a column", self.name))
    }
}

impl ScalarUDFImpl for Fact {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType, DataFusionError> {
        Ok(self.otherwise.data_type())
    }

    fn simplify(&self, args: Vec<Expr>, _info: &SimplifyContext) -> Result<ExprSimplifyResult, DataFusionError> {
        match args.as_slice() {
            [] => Ok(ExprSimplifyResult::Simplified(lit(self.answer(None)?))),
            [Expr::Literal(asked, _)] => Ok(ExprSimplifyResult::Simplified(lit(self.answer(Some(asked))?))),
            // The cluster does not know the function, so what is left of it must be a value.
            [other] if other.any_column_refs() => Err(self.not_one_text()),
            _ => Ok(ExprSimplifyResult::Original(args)),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        match args.args.as_slice() {
            [] => self.answer(None).map(ColumnarValue::Scalar),
            [ColumnarValue::Scalar(asked)] => self.answer(Some(asked)).map(ColumnarValue::Scalar),
            _ => Err(self.not_one_text()),
        }
    }
}

const CURRENT_USER: &str = "current_user";
const HAS_ROLE: &str = "has_role";
const USER_ATTRIBUTE: &str = "user_attribute";
/// All of them.
pub(super) const NAMES: &[&str] = &[CURRENT_USER, HAS_ROLE, USER_ATTRIBUTE];
