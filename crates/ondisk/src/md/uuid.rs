//! Identities of arrays and members.

use std::fmt;

/// The identity of an array or member. It is printed as mdadm prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Parses `text`: 32 hexadecimal digits, with `:` or `-` anywhere between them.
    pub fn parse(text: &str) -> Option<Uuid> {
        let mut digits = text.chars().filter(|c| !matches!(c, ':' | '-'));
        let mut bytes = [0; 16];
        for byte in &mut bytes {
            let (high, low) = (digits.next()?.to_digit(16)?, digits.next()?.to_digit(16)?);
            *byte = u8::try_from(high << 4 | low).ok()?;
        }
        digits.next().is_none().then_some(Uuid(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let colon = if at > 0 && at.is_multiple_of(4) { ":" } else { "" };
            write!(f, "{colon}{byte:02x}")?;
        }
        Ok(())
    }
}
