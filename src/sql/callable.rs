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
        ] {
            assert_eq!(callable(sql), expected);
        }
    }
}
