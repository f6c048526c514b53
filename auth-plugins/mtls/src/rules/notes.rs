//! What an operator should know about rules that are not wrong.
//!
//! The order of rules decides between them; whoever wrote them may not have seen that there is something to decide.
//! Must not refuse: a narrow rule in front of a wide one is how exceptions are written.

use super::{Field, Rule};

/// One sentence each.
pub(super) fn of(rules: &[Rule]) -> Vec<String> {
    let numbered: Vec<_> = rules.iter().zip(1_usize..).collect();
    let mut notes = Vec::new();
    for (before, (rule, number)) in numbered.iter().enumerate() {
        if rule.pattern.is_all_open() {
            let noun = rule.field.noun();
            notes.push(format!("{} fits {noun} of every certificate of the CAs", shown(rule, *number)));
        }
        for (earlier, first) in numbered.iter().take(before) {
            let both = || (shown(earlier, *first), shown(rule, *number));
            if earlier.pattern.covers(&rule.pattern) {
                let (earlier, later) = both();
                notes.push(format!("{later} is never reached: {earlier} fits every name that it fits"));
                break;
            }
            if earlier.pattern.meets(&rule.pattern) && !same_name(earlier, rule) {
                let (earlier, later) = both();
                notes.push(format!("{earlier} and {later} fit some of the same names: the first says who that is"));
            }
        }
    }
    notes.extend(kinds(rules));
    notes
}

/// Two names of different kinds can stand in one certificate. A common name beside another kind does not count.
fn kinds(rules: &[Rule]) -> Option<String> {
    let mut kinds: Vec<Field> = Vec::new();
    for field in rules.iter().map(Rule::field).filter(|field| *field != Field::Cn) {
        if !kinds.contains(&field) {
            kinds.push(field);
        }
    }
    if kinds.len() < 2 {
        return None;
    }
    let kinds = kinds.iter().map(|field| format!("`{}`", field.name())).collect::<Vec<_>>().join(", ");
    Some(format!("rules read {kinds}: a certificate with several of them is who the first rule that fits says"))
}

fn same_name(one: &Rule, other: &Rule) -> bool {
    one.name == other.name && one.name.is_fixed()
}

fn shown(rule: &Rule, number: usize) -> String {
    format!("rule {number} (`{} = \"{}\"`)", rule.field.name(), rule.written)
}
