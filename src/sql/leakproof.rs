//! Whether what a statement computes can tell of rows that it does not see.
//!
//! The optimizer merges filters and moves projections, so that a client's expression may be computed on rows which the
//! policy's filter removes a moment later. Only an error would tell of that: `1 / (id - 2)` fails where `id` is 2. An
//! expression that cannot fail, whatever the row, is leak-proof and may go anywhere. Starts from *no*: what is not
//! listed here can fail. Judges analyzed plans, in which every cast is written out.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::simplify_expressions::{ExprSimplifier, SimplifyContext};

use super::identity;

/// Whether no expression of `plan`, subqueries included, can fail on any row.
pub(super) fn is_leak_proof(plan: &LogicalPlan) -> Result<bool, DataFusionError> {
    let mut all = true;
    plan.apply_with_subqueries(|node| {
        let schema = merge_schema(&node.inputs());
        node.apply_expressions(|expression| {
            all = all && cannot_fail(expression, &schema)?;
            Ok(if all { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
        })?;
        Ok(if all { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(all)
}

/// Whether one expression over `schema` cannot fail on any row.
#[expect(clippy::wildcard_enum_match_arm, reason = "what is not known not to fail can fail")]
pub(super) fn cannot_fail(expression: &Expr, schema: &DFSchema) -> Result<bool, DataFusionError> {
    if is_constant(expression) {
        return Ok(true);
    }
    let all = |parts: &[&Expr]| -> Result<bool, DataFusionError> {
        for part in parts {
            if !cannot_fail(part, schema)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    match expression {
        Expr::Column(_) | Expr::OuterReferenceColumn(_, _) | Expr::Literal(_, _) | Expr::Placeholder(_) => Ok(true),
        // What is in the subquery is judged with the plan; how many rows it has, it has behind the policy.
        Expr::Exists(_) | Expr::ScalarSubquery(_) => Ok(true),
        Expr::Alias(alias) => all(&[&alias.expr]),
        Expr::Not(inner)
        | Expr::IsNotNull(inner)
        | Expr::IsNull(inner)
        | Expr::IsTrue(inner)
        | Expr::IsFalse(inner)
        | Expr::IsUnknown(inner)
        | Expr::IsNotTrue(inner)
        | Expr::IsNotFalse(inner)
        | Expr::IsNotUnknown(inner) => all(&[inner]),
        Expr::BinaryExpr(binary) => {
            let (left, right) = (&binary.left, &binary.right);
            Ok(operator_cannot_fail(binary.op, &left.get_type(schema)?, &right.get_type(schema)?)
                && all(&[left, right])?)
        }
        Expr::Like(like) => all(&[&like.expr, &like.pattern]),
        Expr::Between(between) => all(&[&between.expr, &between.low, &between.high]),
        Expr::InList(list) => {
            let mut parts = vec![list.expr.as_ref()];
            parts.extend(&list.list);
            all(&parts)
        }
        Expr::InSubquery(inside) => all(&[&inside.expr]),
        Expr::Case(case) => {
            let mut parts: Vec<&Expr> = case.expr.iter().chain(&case.else_expr).map(AsRef::as_ref).collect();
            parts.extend(case.when_then_expr.iter().flat_map(|(when, then)| [when.as_ref(), then.as_ref()]));
            all(&parts)
        }
        Expr::TryCast(cast) => all(&[&cast.expr]),
        Expr::Cast(cast) => {
            Ok(cast_cannot_fail(&cast.expr.get_type(schema)?, cast.field.data_type()) && all(&[&cast.expr])?)
        }
        Expr::ScalarFunction(call) => {
            let known = FUNCTIONS.contains(&call.name()) || identity::NAMES.contains(&call.name());
            Ok(known && all(&call.args.iter().collect::<Vec<_>>())?)
        }
        // Computed from rows that have passed the policy; only what goes in could be computed before.
        Expr::AggregateFunction(call) => {
            let mut parts: Vec<&Expr> = call.params.args.iter().chain(call.params.filter.as_deref()).collect();
            parts.extend(call.params.order_by.iter().map(|sort| &sort.expr));
            all(&parts)
        }
        Expr::WindowFunction(call) => {
            let mut parts: Vec<&Expr> = call.params.args.iter().chain(&call.params.partition_by).collect();
            parts.extend(call.params.filter.as_deref());
            parts.extend(call.params.order_by.iter().map(|sort| &sort.expr));
            all(&parts)
        }
        Expr::GroupingSet(set) => all(&set.distinct_expr()),
        _ => Ok(false),
    }
}

/// Whether it is one value, which can be computed now.
fn is_constant(expression: &Expr) -> bool {
    if expression.any_column_refs() || expression.is_volatile() {
        return false;
    }
    let folded = ExprSimplifier::new(SimplifyContext::default()).simplify(expression.clone());
    folded.is_ok_and(|folded| matches!(folded, Expr::Literal(_, _)))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "what is not known not to fail can fail")]
fn operator_cannot_fail(operator: Operator, left: &DataType, right: &DataType) -> bool {
    match operator {
        Operator::Eq
        | Operator::NotEq
        | Operator::Lt
        | Operator::LtEq
        | Operator::Gt
        | Operator::GtEq
        | Operator::And
        | Operator::Or
        | Operator::IsDistinctFrom
        | Operator::IsNotDistinctFrom
        | Operator::LikeMatch
        | Operator::ILikeMatch
        | Operator::NotLikeMatch
        | Operator::NotILikeMatch
        | Operator::StringConcat => true,
        // Whole numbers wrap, fractions have infinities, decimals fail when the digits do not suffice.
        Operator::Plus | Operator::Minus => {
            both(left, right, |kind| kind.is_integer() || kind.is_floating()) || decimals(left, right, Digits::OfSum)
        }
        Operator::Multiply => {
            both(left, right, |kind| kind.is_integer() || kind.is_floating())
                || decimals(left, right, Digits::OfProduct)
        }
        Operator::Divide | Operator::Modulo => both(left, right, DataType::is_floating),
        _ => false,
    }
}

fn both(left: &DataType, right: &DataType, is: impl Fn(&DataType) -> bool) -> bool {
    is(left) && is(right)
}

/// What a result may need.
#[derive(Clone, Copy)]
enum Digits {
    OfProduct,
    OfSum,
}

fn decimals(left: &DataType, right: &DataType, digits: Digits) -> bool {
    let (DataType::Decimal128(p1, s1), DataType::Decimal128(p2, s2)) = (left, right) else { return false };
    let (p1, s1, p2, s2) = (i32::from(*p1), i32::from(*s1), i32::from(*p2), i32::from(*s2));
    let needed = match digits {
        Digits::OfProduct => p1.saturating_add(p2).saturating_add(1),
        Digits::OfSum => p1.saturating_sub(s1).max(p2.saturating_sub(s2)).saturating_add(s1.max(s2)).saturating_add(1),
    };
    needed <= DIGITS
}

/// Whether every value of `from` is one of `to`.
fn cast_cannot_fail(from: &DataType, to: &DataType) -> bool {
    use DataType as T;
    if from == to {
        return true;
    }
    let text = |kind: &T| matches!(kind, T::Utf8 | T::LargeUtf8 | T::Utf8View);
    match (from, to) {
        (T::Dictionary(_, value), to) => cast_cannot_fail(value, to),
        (T::Null, _) => true,
        (from, to) if text(to) => {
            text(from) || from.is_integer() || from.is_floating() || matches!(from, T::Boolean | T::Decimal128(_, _))
        }
        (T::Boolean, to) => to.is_integer(),
        (from, T::Float64) => from.is_integer() || from.is_floating() || matches!(from, T::Decimal128(_, _)),
        (T::Int8 | T::Int16 | T::UInt8 | T::UInt16 | T::Float16, T::Float32) => true,
        (T::Decimal128(p1, s1), T::Decimal128(p2, s2)) => {
            let whole = |p: u8, s: i8| i32::from(p).saturating_sub(i32::from(s));
            s2 >= s1 && whole(*p2, *s2) >= whole(*p1, *s1)
        }
        (from, T::Decimal128(p, s)) => {
            integer(from).is_some_and(|of| of.digits <= i32::from(*p).saturating_sub(i32::from(*s)))
        }
        (from, to) => match (integer(from), integer(to)) {
            (Some(from), Some(to)) => from.bits < to.bits && (from.signed == to.signed || to.signed == Signed::Yes),
            _ => false,
        },
    }
}

struct Integer {
    bits: u8,
    digits: i32,
    signed: Signed,
}

#[derive(PartialEq, Eq)]
enum Signed {
    No,
    Yes,
}

#[expect(clippy::wildcard_enum_match_arm, reason = "all others are no integers")]
fn integer(kind: &DataType) -> Option<Integer> {
    let (bits, digits, signed) = match kind {
        DataType::Int8 => (8, 3, Signed::Yes),
        DataType::Int16 => (16, 5, Signed::Yes),
        DataType::Int32 => (32, 10, Signed::Yes),
        DataType::Int64 => (64, 19, Signed::Yes),
        DataType::UInt8 => (8, 3, Signed::No),
        DataType::UInt16 => (16, 5, Signed::No),
        DataType::UInt32 => (32, 10, Signed::No),
        DataType::UInt64 => (64, 20, Signed::No),
        _ => return None,
    };
    Some(Integer { bits, digits, signed })
}

/// Of a 128-bit decimal.
const DIGITS: i32 = 38;
/// Functions that have an answer for every value.
const FUNCTIONS: &[&str] = &[
    "btrim",
    "char_length",
    "character_length",
    "coalesce",
    "concat",
    "ends_with",
    "greatest",
    "least",
    "length",
    "lower",
    "ltrim",
    "nullif",
    "nvl",
    "rtrim",
    "starts_with",
    "strpos",
    "trim",
    "upper",
];
