//! An Avro file of two records, byte by byte.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

/// A container of `(id long, name string)` with these records, uncompressed.
pub(super) fn container(records: &[(i64, &str)]) -> Vec<u8> {
    let schema =
        r#"{"type":"record","name":"row","fields":[{"name":"id","type":"long"},{"name":"name","type":"string"}]}"#;
    let mut file = b"Obj\x01".to_vec();
    long(&mut file, 2);
    for (key, value) in [("avro.schema", schema), ("avro.codec", "null")] {
        text(&mut file, key);
        text(&mut file, value);
    }
    long(&mut file, 0);
    file.extend_from_slice(SYNC);
    let mut block = Vec::new();
    for (id, name) in records {
        long(&mut block, *id);
        text(&mut block, name);
    }
    long(&mut file, i64::try_from(records.len()).unwrap());
    long(&mut file, i64::try_from(block.len()).unwrap());
    file.append(&mut block);
    file.extend_from_slice(SYNC);
    file
}

fn text(to: &mut Vec<u8>, text: &str) {
    long(to, i64::try_from(text.len()).unwrap());
    to.extend_from_slice(text.as_bytes());
}

/// Zigzag, seven bits a byte.
fn long(to: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while rest > 0x7f {
        to.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
        rest >>= 7;
    }
    to.push(u8::try_from(rest).unwrap());
}

const SYNC: &[u8; 16] = b"sixteen byte syn";
