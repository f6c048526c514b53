//! What nobody but the owner may read, and a search for it in everything that came over a line.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use crate::support::client::{Client, Tape};

/// Texts of hidden rows, masked cells, names, policies and paths; each in one place only.
pub(crate) const TEXTS: &[&str] = &[
    "zqrowtwo",
    "zqrowsix",
    "zqrownought",
    "zqrowminus",
    "zqcardone",
    "zqcardtwo",
    "zqcardthree",
    "zqcardfour",
    "zqcardfive",
    "zqcardsix",
    "zqcardnought",
    "zqcardeight",
    "zqcardminus",
    "zqtable",
    "zqcolumn",
    "zqcellar",
    "zqattic",
    "zqbox",
    "zqliteral",
    "zqauditor",
    "zqpath",
    "zqview",
];

/// Numbers of hidden rows.
pub(crate) const NUMBERS: &[i64] = &[918_273_645, 918_273_646, 918_273_647, -918_273_648];

/// The secrets that are found in what came over the line of `client`, in the clear or in a common guise.
pub(crate) fn found(client: &Client) -> Vec<String> {
    found_in(&client.tape())
}

pub(crate) fn found_in(tape: &Tape) -> Vec<String> {
    let text = tape.text();
    let data = tape.data.as_slice();
    let mut found = Vec::new();
    for secret in TEXTS {
        if let Some(guise) = guises(secret).into_iter().find(|guise| text.contains(guise.as_str())) {
            found.push(format!("{secret} as {guise}"));
        }
    }
    for number in NUMBERS {
        let digits = number.unsigned_abs().to_string();
        let bytes = |bytes: &[u8]| data.windows(bytes.len()).any(|window| window == bytes);
        let narrow = i32::try_from(*number).unwrap().to_le_bytes();
        let float = f64::from(i32::try_from(*number).unwrap()).to_le_bytes();
        if text.contains(&digits) || bytes(&narrow) || bytes(&float) || bytes(&number.to_be_bytes()) {
            found.push(digits);
        }
    }
    found
}

/// A text as it is, and as simple functions make it.
pub(crate) fn guises(secret: &str) -> Vec<String> {
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut guises =
        vec![secret.to_owned(), secret.to_uppercase(), secret.chars().rev().collect(), hex.to_uppercase(), hex];
    // Wherever the text begins in what was encoded: the letters that depend on its neighbours are left out.
    for before in 0..3 {
        let encoded = STANDARD_NO_PAD.encode([&vec![0; before], secret.as_bytes()].concat());
        let from = if before == 0 { 0 } else { before + 1 };
        let whole = (before + secret.len()) * 8 / 6;
        guises.push(encoded.chars().take(whole).skip(from).collect());
    }
    guises
}
