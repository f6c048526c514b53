//! `current_user()` with its brackets, which the parser does not take.
//!
//! Must not change a statement in another way.

use std::borrow::Cow;

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, Tokenizer};

/// The parser takes `current_user` for a whole call and stumbles over its brackets: they become spaces, so that what it
/// says of other places stays right.
pub(super) fn callable(sql: &str) -> Cow<'_, str> {
    let called = sql.as_bytes().windows(NAME.len()).any(|at| at.eq_ignore_ascii_case(NAME.as_bytes()));
    let tokens = if called { Tokenizer::new(&GenericDialect {}, sql).tokenize_with_location().ok() } else { None };
    let Some(tokens) = tokens else { return Cow::Borrowed(sql) };
    let tokens: Vec<_> = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    let calls = tokens.windows(3).filter_map(|three| match three {
        [word, open, close]
            if matches!(&word.token, Token::Word(word) if word.keyword == Keyword::CURRENT_USER)
                && (&open.token, &close.token) == (&Token::LParen, &Token::RParen) =>
        {
            Some([open.span.start, close.span.start])
        }
        _ => None,
    });
    let mut brackets = calls.flatten().peekable();
    // Once through the text, as the tokenizer counts: there may be thousands of calls.
    let mut place = Location { line: 1, column: 1 };
    let blanked = sql.chars().map(|letter| {
        let letter = if brackets.next_if_eq(&place).is_some() { ' ' } else { letter };
        place = match letter {
            '\n' => Location { line: place.line.saturating_add(1), column: 1 },
            _ => Location { line: place.line, column: place.column.saturating_add(1) },
        };
        letter
    });
    Cow::Owned(blanked.collect())
}

const NAME: &str = "current_user";

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
            ("SELECT\r\n\tcurrent_user(\n)", "SELECT\r\n\tcurrent_user \n "),
        ] {
            assert_eq!(callable(sql), expected);
        }
    }
}
