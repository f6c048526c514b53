//! Generated statements: whatever is asked, rows and errors are those of a copy without the hidden rows.

use super::*;

#[tokio::test]
async fn any_statement_answers_as_over_a_copy_without_the_hidden_rows() {
    let behind = Gate::of("analyst", rows(), &[]);
    let copy = Gate::of("analyst", european(&rows()), &[]);
    // Nothing hidden and no policy: another plan, which may meet the error of a row that both see, or may not.
    let plain = Gate::of("owner", european(&rows()), &[]);
    let whole = Gate::of("owner", rows(), &[]);
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let (mut answered, mut failed, mut differing, mut by_plan) = (0, 0, 0, 0);
    for round in 0..STATEMENTS {
        let sql = dice.statement();
        let (seen, expected) = (behind.ask(&sql).await, copy.ask(&sql).await);
        match (&seen, &expected) {
            (Ok(seen), Ok(expected)) => {
                assert_eq!(sorted(seen), sorted(expected), "statement {round}: {sql}");
                answered += 1;
            }
            (Err(seen), Err(expected)) => {
                assert_eq!(seen, expected, "statement {round}: {sql}");
                failed += 1;
            }
            (seen, expected) => assert_eq!(seen, expected, "statement {round}: {sql}"),
        }
        match (&seen, plain.ask(&sql).await) {
            (Ok(seen), Ok(plain)) => assert_eq!(sorted(seen), sorted(&plain), "statement {round}: {sql}"),
            (Err(_), Err(_)) => (),
            (Ok(_), Err(_)) | (Err(_), Ok(_)) => by_plan += 1,
        }
        differing += u32::from(whole.ask(&sql).await.is_ok() != seen.is_ok());
    }
    // The search has looked at all kinds, and the hidden rows would have shown.
    assert!(answered > STATEMENTS / 3, "{answered}");
    assert!(failed > STATEMENTS / 50, "{failed}");
    assert!(differing > STATEMENTS / 100, "{differing}");
    assert!(by_plan < STATEMENTS / 50, "{by_plan}");
}

fn sorted(table: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = table.lines().collect();
    lines.sort_unstable();
    lines
}

/// A generator of statements over `t`: SplitMix64, the same statements in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)).checked_rem(sides).unwrap()
    }

    fn statement(&mut self) -> String {
        let (a, b) = (self.number(2, ""), self.condition(2, ""));
        match self.roll(11) {
            0 | 1 => format!("SELECT id, {a} AS x FROM t WHERE {b}"),
            2 => format!("SELECT x, r FROM (SELECT {a} AS x, region AS r, id FROM t) q WHERE {}", self.outer()),
            3 => format!("SELECT region, count(*), sum({a}), min(name) FROM t WHERE {b} GROUP BY region"),
            4 => format!("SELECT {a} AS x, count(*) FROM t GROUP BY {a} HAVING count(*) > 0"),
            5 => {
                let on = self.condition(1, "b.");
                format!(
                    "SELECT a.id, b.id AS k FROM t a JOIN t b ON a.id = b.id AND {on} WHERE {}",
                    self.condition(1, "a.")
                )
            }
            6 => format!("SELECT id FROM t WHERE {a} IN (SELECT {} FROM t WHERE {b})", self.number(1, "")),
            7 => {
                let inner = self.condition(1, "u.");
                format!("SELECT id FROM t WHERE EXISTS (SELECT 1 FROM t u WHERE u.id = t.id AND {inner})")
            }
            8 => format!("SELECT id, {a} AS x FROM t WHERE {b} ORDER BY x, id LIMIT {}", self.roll(6)),
            9 => format!("SELECT {a} AS x FROM t UNION ALL SELECT {} FROM t WHERE {b}", self.number(1, "")),
            _ => format!("SELECT id, sum({a}) OVER (PARTITION BY region ORDER BY id) AS x FROM t WHERE {b}"),
        }
    }

    fn outer(&mut self) -> String {
        match self.roll(4) {
            0 => "r = 'EU'".to_owned(),
            1 => "10 / x > 0".to_owned(),
            2 => "x IS NULL OR 1 / (x - 2) > -9".to_owned(),
            _ => "r <> 'US' AND x % 3 = 0".to_owned(),
        }
    }

    fn number(&mut self, depth: u8, of: &str) -> String {
        let kinds = if depth == 0 { 5 } else { 13 };
        let below = depth.saturating_sub(1);
        match self.roll(kinds) {
            0 | 1 => format!("{of}id"),
            2 => format!("{of}v"),
            3 => (self.roll(9)).to_string(),
            4 => format!("coalesce({of}v, {})", self.roll(3)),
            5 => format!("({} + {})", self.number(below, of), self.number(below, of)),
            6 => format!("({} * {})", self.number(below, of), self.number(below, of)),
            7 | 8 => format!("({} / {})", self.number(below, of), self.number(below, of)),
            9 => format!("({} % ({} - 2))", self.number(below, of), self.number(below, of)),
            10 => format!("CAST({of}name AS BIGINT)"),
            11 => {
                let (when, then) = (self.condition(below, of), self.number(below, of));
                format!("CASE WHEN {when} THEN {then} ELSE {} END", self.number(below, of))
            }
            _ => format!("length({of}name)"),
        }
    }

    fn condition(&mut self, depth: u8, of: &str) -> String {
        let kinds = if depth == 0 { 4 } else { 8 };
        let below = depth.saturating_sub(1);
        match self.roll(kinds) {
            0 => format!("{} > {}", self.number(below, of), self.number(below, of)),
            1 => format!("{of}v IS {}NULL", if self.roll(2) == 0 { "" } else { "NOT " }),
            2 => format!("{of}name LIKE '%{}%'", self.roll(9)),
            3 => format!("{of}region = '{}'", if self.roll(2) == 0 { "EU" } else { "US" }),
            4 => format!("({} AND {})", self.condition(below, of), self.condition(below, of)),
            5 => format!("({} OR {})", self.condition(below, of), self.condition(below, of)),
            6 => format!("NOT ({})", self.condition(below, of)),
            _ => format!("{} IN (0, 1, {})", self.number(below, of), self.number(below, of)),
        }
    }
}

const STATEMENTS: u32 = 500;
