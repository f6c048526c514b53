//! Caps on a statement before it is planned: length, tokens, nesting, flat chains.
//!
//! Nesting is what parsers bound; flat chains (`a OR b OR …`, `1+1+…`, `UNION ALL …`) are what they forget and what
//! overflows a planner's stack (finding F6). Works on tokens, so that its own cost is linear. Must not judge meaning.

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::status::{Class, Failure};

/// The limits of `[limits]` that concern SQL text.
#[derive(Clone, Debug)]
pub struct SqlCaps {
    /// Length in bytes.
    pub bytes: usize,
    /// Nesting of parentheses, subqueries and CASE.
    pub depth: usize,
    /// Operators in one flat chain: at one level of nesting between two commas.
    pub chain: usize,
}

impl SqlCaps {
    /// Refuses what is too long to be looked at.
    pub(super) fn check_length(&self, bytes: usize) -> Result<(), Failure> {
        if bytes > self.bytes {
            return Err(too_large(format!("the statement has {bytes} bytes; the limit is {}", self.bytes)));
        }
        Ok(())
    }

    /// Refuses what must not reach a parser.
    #[expect(clippy::wildcard_enum_match_arm, reason = "only brackets, commas and operators count")]
    pub(super) fn check(&self, sql: &str) -> Result<(), Failure> {
        self.check_length(sql.len())?;
        if sql.contains('\0') {
            return Err(Failure::new(Class::InvalidArgument, "the statement contains a NUL character"));
        }
        let tokens = Tokenizer::new(&GenericDialect {}, sql)
            .tokenize()
            .map_err(|error| Failure::about_request(Class::InvalidArgument, format!("SQL error: {error}")))?;
        let mut levels = vec![0_usize];
        let mut cases = 0_usize;
        let mut prefixes = 0_usize;
        for token in tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))) {
            prefixes = if is_prefix(token) { prefixes.saturating_add(1) } else { 0 };
            match token {
                Token::LParen | Token::LBracket | Token::LBrace => levels.push(0),
                Token::RParen | Token::RBracket | Token::RBrace => {
                    levels.pop();
                    if levels.is_empty() {
                        levels.push(0);
                    }
                }
                Token::Comma => {
                    if let Some(count) = levels.last_mut() {
                        *count = 0;
                    }
                }
                Token::Word(word) if word.keyword == Keyword::CASE => cases = cases.saturating_add(1),
                Token::Word(word) if word.keyword == Keyword::END => cases = cases.saturating_sub(1),
                token if chains(token) => {
                    if let Some(count) = levels.last_mut() {
                        *count = count.saturating_add(1);
                        if *count > self.chain {
                            return Err(too_large(format!("the statement chains more than {} operators", self.chain)));
                        }
                    }
                }
                _ => (),
            }
            let nested = levels.len().saturating_add(cases).saturating_add(prefixes);
            if nested > self.depth.saturating_add(1) {
                return Err(too_large(format!("the statement nests deeper than {} levels", self.depth)));
            }
        }
        Ok(())
    }

    /// A second look at what the parser made of it: EXPLAIN may wrap EXPLAIN.
    pub(super) fn check_statement(&self, statement: &Statement) -> Result<(), Failure> {
        let mut inner = statement;
        let mut levels = 0_usize;
        while let Statement::Explain(explain) = inner {
            inner = &explain.statement;
            levels = levels.saturating_add(1);
            if levels > self.depth {
                return Err(too_large(format!("the statement nests deeper than {} levels", self.depth)));
            }
        }
        Ok(())
    }
}

/// Operators before their operand: a run of them nests.
#[expect(clippy::wildcard_enum_match_arm, reason = "prefix operators are listed")]
fn is_prefix(token: &Token) -> bool {
    match token {
        Token::Word(word) => word.keyword == Keyword::NOT,
        Token::Plus | Token::Minus | Token::Tilde | Token::ExclamationMark => true,
        _ => false,
    }
}

/// Tokens that make a plan or an expression one node deeper without a bracket.
#[expect(clippy::wildcard_enum_match_arm, reason = "operators are listed; all other tokens are leaves")]
fn chains(token: &Token) -> bool {
    match token {
        Token::Word(word) => matches!(
            word.keyword,
            Keyword::AND
                | Keyword::OR
                | Keyword::XOR
                | Keyword::NOT
                | Keyword::UNION
                | Keyword::EXCEPT
                | Keyword::INTERSECT
                | Keyword::JOIN
                | Keyword::LIKE
                | Keyword::ILIKE
                | Keyword::IS
                | Keyword::BETWEEN
                | Keyword::IN
                | Keyword::WHEN
                | Keyword::COLLATE
        ),
        Token::Plus
        | Token::Minus
        | Token::Mul
        | Token::Div
        | Token::Mod
        | Token::DuckIntDiv
        | Token::Eq
        | Token::DoubleEq
        | Token::Neq
        | Token::Lt
        | Token::Gt
        | Token::LtEq
        | Token::GtEq
        | Token::Spaceship
        | Token::StringConcat
        | Token::Pipe
        | Token::Ampersand
        | Token::Caret
        | Token::ShiftLeft
        | Token::ShiftRight
        | Token::Overlap
        | Token::DoubleColon
        | Token::Tilde
        | Token::ExclamationMark
        | Token::Arrow
        | Token::LongArrow
        | Token::AtArrow
        | Token::ArrowAt => true,
        _ => false,
    }
}

fn too_large(sentence: String) -> Failure {
    Failure::about_request(Class::InvalidArgument, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sql: &str) -> Result<(), String> {
        SqlCaps { bytes: 100_000, depth: 50, chain: 200 }.check(sql).map_err(|failure| failure.sentence().to_owned())
    }

    #[test]
    fn statements_of_people_pass() {
        for sql in [
            "SELECT 1",
            "select a.b.c, d from a.b.c where x in (1, 2, 3) and not y -- trailing",
            "SELECT CASE WHEN a THEN 1 ELSE 2 END FROM t",
            "SELECT ')' || '((((' FROM t",
        ] {
            assert_eq!(check(sql), Ok(()), "{sql}");
        }
        assert_eq!(check(&format!("SELECT {}", vec!["a + 1"; 5000].join(", "))), Ok(()));
        assert_eq!(check(&format!("SELECT * FROM t WHERE a IN ({})", vec!["1"; 20_000].join(","))), Ok(()));
    }

    #[test]
    fn flat_chains_and_nesting_are_refused() {
        for sql in [
            format!("SELECT {}1", "1+".repeat(300)),
            format!("SELECT * FROM t WHERE {}a = 2", "a = 1 OR ".repeat(300)),
            vec!["SELECT 1"; 300].join(" UNION ALL "),
            format!("SELECT a{}", "::int".repeat(300)),
        ] {
            assert!(check(&sql).is_err_and(|text| text.contains("chains more than 200")), "{sql}");
        }
        for sql in [
            format!("SELECT {}1{}", "(".repeat(100), ")".repeat(100)),
            format!("SELECT {}1{}", "abs(".repeat(100), ")".repeat(100)),
            format!("SELECT {}1", "NOT ".repeat(60)),
            format!("SELECT {}1", "- ".repeat(60)),
            format!("SELECT {}1 {}", "CASE WHEN true THEN ".repeat(60), "END ".repeat(60)),
        ] {
            assert!(check(&sql).is_err_and(|text| text.contains("nests deeper")), "{sql}");
        }
    }

    #[test]
    fn length_and_nul_are_refused() {
        assert!(check(&format!("SELECT '{}'", "x".repeat(100_001))).is_err());
        assert!(check("SELECT '\0'").is_err());
        assert!(check("SELECT 'unterminated").is_err());
    }
}
