//! How fuzz targets read their input: as a choice, parts and edits, so that seeds can be written by hand.
//!
//! Used by the targets outside this crate as well. Every input means something. Must not allocate more than its input
//! is long, or than the edited original is.

/// What is left of an input.
#[derive(Debug)]
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// The next byte, or 0 where there is none, as one of `of` choices: the digit `1` is the second of up to ten.
    pub(crate) fn choice(&mut self, of: u8) -> u8 {
        let Some((&byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        let number = if byte.is_ascii_digit() { byte.saturating_sub(b'0') } else { byte };
        number.checked_rem(of).unwrap_or(0)
    }

    /// Up to the next line end, which is skipped; everything where there is none.
    pub(crate) fn line(&mut self) -> &'a [u8] {
        let mut parts = self.0.splitn(2, |byte| *byte == b'\n');
        let line = parts.next().unwrap_or_default();
        self.0 = parts.next().unwrap_or_default();
        line
    }

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// `original`, changed as what is left says: four bytes are one edit.
    pub(crate) fn edited(&mut self, original: &[u8]) -> Vec<u8> {
        let mut bytes = original.to_vec();
        for edit in self.rest().chunks_exact(4) {
            let &[what, high, low, byte] = edit else { continue };
            let at = usize::from(u16::from_be_bytes([high, low]));
            let at = at.checked_rem(bytes.len().saturating_add(1)).unwrap_or(0);
            match what % 4 {
                0 => {
                    if let Some(old) = bytes.get_mut(at) {
                        *old = byte;
                    }
                }
                1 => bytes.insert(at, byte),
                2 => {
                    if at < bytes.len() {
                        bytes.remove(at);
                    }
                }
                _ => bytes.truncate(at),
            }
        }
        bytes
    }
}
