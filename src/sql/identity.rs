//! SQL functions that tell who asks: `current_user()`, `has_role('…')` and `user_attribute('…')`.
//!
//! For the predicates of grants and for everybody's own statements. They are values before a plan leaves the gate, so
//! that no executor needs to know them. Must not tell anything of anybody else.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, lit,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, Tokenizer};
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

/// The parser takes `current_user` for a whole call and stumbles over its brackets: they become spaces, so that what it
/// says of other places stays right.
pub(super) fn callable(sql: &str) -> Cow<'_, str> {
    let called = sql.as_bytes().windows(CURRENT_USER.len()).any(|at| at.eq_ignore_ascii_case(CURRENT_USER.as_bytes()));
    let tokens = if called { Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location().ok() } else { None };
    let Some(tokens) = tokens else { return Cow::Borrowed(sql) };
    let mut text = sql.as_bytes().to_vec();
    let tokens: Vec<_> = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    for three in tokens.windows(3) {
        if let [word, open, close] = three
            && matches!(&word.token, Token::Word(word) if word.keyword == Keyword::CURRENT_USER)
            && (&open.token, &close.token) == (&Token::LParen, &Token::RParen)
        {
            for bracket in [open, close] {
                if let Some(byte) = offset(sql, bracket.span.start).and_then(|offset| text.get_mut(offset)) {
                    *byte = b' ';
                }
            }
        }
    }
    String::from_utf8(text).map_or(Cow::Borrowed(sql), Cow::Owned)
}

/// The byte at a place that the tokenizer tells in lines and characters, from 1.
fn offset(sql: &str, place: Location) -> Option<usize> {
    let (line, column) = (usize::try_from(place.line).ok()?, usize::try_from(place.column).ok()?);
    let start = match line.checked_sub(2) {
        None => 0,
        Some(breaks) => sql.match_indices('\n').nth(breaks)?.0.checked_add(1)?,
    };
    let within = sql.get(start..)?.char_indices().nth(column.checked_sub(1)?)?.0;
    start.checked_add(within)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_behind_the_current_user_are_blank_and_nothing_else_is() {
        for (sql, expected) in [
            ("SELECT current_user()", "SELECT current_user  "),
            ("SELECT 'é',\n  Current_User /* x */ ( ), now()", "SELECT 'é',\n  Current_User /* x */    , now()"),
            ("SELECT current_user() = a, current_user()", "SELECT current_user   = a, current_user  "),
            ("SELECT current_user(1)", "SELECT current_user(1)"),
            ("SELECT 'current_user()', \"current_user\"()", "SELECT 'current_user()', \"current_user\"()"),
            ("SELECT current_user('", "SELECT current_user('"),
            ("SELECT x()", "SELECT x()"),
        ] {
            assert_eq!(callable(sql), expected);
        }
    }
}
