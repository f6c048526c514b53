//! One SQL expression over the columns of a row, as `rows` and `mask` need it.
//!
//! Looks at the form alone: which columns and functions there are shows when a table is read. Must not plan anything.

use std::fmt;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Query, Value, ValueWithSpan, Visit as _, Visitor};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

/// The longest text of a policy, in bytes.
pub const LONGEST: usize = 4096;

/// The one expression that `text` is, if it has neither subqueries nor parameters nor wildcards.
///
/// # Errors
///
/// Why the text cannot be used.
pub fn parse(text: &str) -> Result<Expr, Unusable> {
    if text.len() > LONGEST {
        return Err(Unusable::Long);
    }
    if text.contains('\0') {
        return Err(Unusable::Nul);
    }
    let dialect = GenericDialect {};
    let tokens = Tokenizer::new(&dialect, text).tokenize_with_location();
    let mut tokens = tokens.map_err(|error| Unusable::Syntax(error.to_string()))?;
    call_by_name(&mut tokens);
    let mut parser = Parser::new(&dialect).with_recursion_limit(DEEPEST).with_tokens_with_locations(tokens);
    let expression = parser.parse_expr().map_err(|error| Unusable::Syntax(said(error)))?;
    let next = parser.peek_token();
    if next.token != Token::EOF {
        return Err(Unusable::Syntax(format!("there is more behind the expression, from `{}` on", next.token)));
    }
    match expression.visit(&mut OnlyThisRow) {
        ControlFlow::Break(unusable) => Err(unusable),
        ControlFlow::Continue(()) => Ok(expression),
    }
}

/// Why a text is not an expression that a policy can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It is longer than [`LONGEST`].
    Long,
    /// It has a NUL character.
    Nul,
    /// It has a parameter, which nobody would give.
    Parameter,
    /// It has a subquery, which would read another table past that table's own policy.
    Subquery,
    /// It does not parse; this is what the parser says.
    Syntax(String),
    /// It has a `*` for columns.
    Wildcard,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long => write!(f, "it is longer than {LONGEST} bytes"),
            Self::Nul => f.write_str("it has a NUL character"),
            Self::Parameter => f.write_str("it has a parameter"),
            Self::Subquery => f.write_str("it has a subquery"),
            Self::Syntax(said) => f.write_str(said),
            Self::Wildcard => f.write_str("it has a `*` for columns"),
        }
    }
}

impl std::error::Error for Unusable {}

/// The parser takes `current_user` for a whole call and stumbles over its brackets. Where they follow it is made a name
/// like any other.
#[expect(clippy::wildcard_enum_match_arm, reason = "all other tokens stay as they are")]
fn call_by_name(tokens: &mut [TokenWithSpan]) {
    let mut bracket_follows = false;
    for token in tokens.iter_mut().rev().map(|token| &mut token.token) {
        match token {
            Token::Whitespace(_) => continue,
            Token::Word(word) if bracket_follows && word.keyword == Keyword::CURRENT_USER => {
                word.keyword = Keyword::NoKeyword;
            }
            _ => (),
        }
        bracket_follows = *token == Token::LParen;
    }
}

fn said(error: ParserError) -> String {
    match error {
        ParserError::ParserError(said) | ParserError::TokenizerError(said) => said,
        ParserError::RecursionLimitExceeded => "it nests too deep".to_owned(),
    }
}

/// Refuses what reaches beyond the row.
struct OnlyThisRow;

impl Visitor for OnlyThisRow {
    type Break = Unusable;

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<Unusable> {
        ControlFlow::Break(Unusable::Subquery)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the form of all others is judged when they are planned")]
    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<Unusable> {
        match expression {
            Expr::Wildcard(_) | Expr::QualifiedWildcard(_, _) => ControlFlow::Break(Unusable::Wildcard),
            _ => ControlFlow::Continue(()),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all other values are given")]
    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<Unusable> {
        match value.value {
            Value::Placeholder(_) => ControlFlow::Break(Unusable::Parameter),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// As deep as the parser goes by itself.
const DEEPEST: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<(), Unusable> {
        parse(text).map(drop)
    }

    #[test]
    fn expressions_over_a_row_are_accepted() {
        for text in [
            "region = 'EU'",
            "NULL",
            "'***'",
            "\"Region\" IN ('EU', 'US') AND NOT deleted -- a note",
            "owner = current_user() OR has_role('auditor')",
            "Current_User ( ) = owner AND current_user IN ('a', upper(current_user()))",
            "CASE WHEN has_role('support') THEN left(email, 3) || '***' ELSE NULL END",
            "department = user_attribute('department') AND day > now() - INTERVAL '30' DAY",
            "CAST(extract(year FROM day) AS int) >= 2020",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        assert_eq!(check(&format!("a IN ({})", vec!["1"; 2000].join(","))), Ok(()));
        assert_eq!(check(&vec!["a"; 1000].join("+")), Ok(()), "a long flat chain overflows nothing");
    }

    #[test]
    fn the_user_who_asks_is_a_function_with_brackets_and_without() {
        for text in ["current_user", "current_user()", "CURRENT_USER  /* who */ ()", "\"current_user\"()"] {
            assert!(matches!(parse(text), Ok(Expr::Function(_))), "{text}");
        }
        assert!(check("current_user ) (").is_err() && check("'current_user' ()").is_err());
    }

    #[test]
    fn what_reaches_beyond_the_row_is_refused() {
        for (text, expected) in [
            ("region = 'E\0U'", Unusable::Nul),
            ("region IN (SELECT region FROM allowed)", Unusable::Subquery),
            ("EXISTS (SELECT 1)", Unusable::Subquery),
            ("abs((SELECT max(a) FROM t)) > 1", Unusable::Subquery),
            ("a = ANY (SELECT b FROM t)", Unusable::Subquery),
            ("ARRAY(SELECT a FROM t) = b", Unusable::Subquery),
            ("owner = $1", Unusable::Parameter),
            ("owner = ?", Unusable::Parameter),
            ("owner = :name", Unusable::Parameter),
            ("CASE WHEN a THEN $x END", Unusable::Parameter),
        ] {
            assert_eq!(check(text), Err(expected), "{text}");
        }
        assert_eq!(check(&format!("a = '{}'", "x".repeat(LONGEST))), Err(Unusable::Long));
    }

    #[test]
    fn what_is_not_one_expression_is_refused() {
        for text in [
            "",
            "region =",
            "region = 'EU",
            "a, b",
            "a AS b",
            "a b",
            "true; DROP TABLE t",
            "true) OR (true",
            "SELECT 1",
            "WHERE a",
            "a = 1 /* open",
            "*",
            "t.*",
        ] {
            assert!(check(text).is_err(), "{text}");
        }
        for nested in ["(", "NOT ", "- ", "abs("] {
            assert!(check(&format!("{}a", nested.repeat(200))).is_err(), "{nested}");
        }
    }
}
