//! Names that ignore case (feature `casefold`).
//!
//! Two names are equal if their folded forms are equal. In the folded form each character is
//! replaced by its full case folding, in canonical decomposition, and combining marks are in
//! canonical order. Characters that are ignored by default are removed, and marks are not reordered
//! across them. Characters that Unicode 12.1 does not assign stay as they are. A name that is not
//! UTF-8 is its own folded form.
//!
//! Sources: kernel documentation, ext4, "Case-insensitive file name lookups"; Unicode 12.1,
//! sections 3.11 and 3.13. The order of the steps is that of `debugfs -R "dx_hash -c"`: the hashes
//! of all code points and of 200,000 random names equal those that debugfs computes.
//!
//! Unicode never changes the folding and the decomposition of an assigned character. So for the
//! characters of version 12.1, the tables of a later version give the same results as those of
//! version 12.1.

use caseless::Caseless;
use std::borrow::Cow;
use unicode_normalization::UnicodeNormalization;

include!(concat!(env!("OUT_DIR"), "/unicode_12_1.rs"));

/// How the names of a directory are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Folding {
    /// By their bytes.
    #[default]
    None,
    /// By their folded forms; a name that is not UTF-8 is compared by its bytes.
    Lenient,
    /// By their folded forms; a name that is not UTF-8 is refused.
    Strict,
}

impl Folding {
    /// Returns whether a name in the directory may consist of these bytes.
    pub fn permits(self, name: &[u8]) -> bool {
        self != Folding::Strict || std::str::from_utf8(name).is_ok()
    }

    /// Returns whether a new entry may get this name. `name` must not be "." or ".." itself.
    /// Another name whose folded form is "." or ".." is refused, because look-ups could not tell it
    /// from "." or "..".
    pub fn permits_new(self, name: &[u8]) -> bool {
        let is_dot = || matches!(&*self.form(name), b"." | b"..");
        self == Folding::None || self.permits(name) && !is_dot()
    }

    /// Returns whether [`Folding::form`] of `name` equals `form`, which is the form of another
    /// name. A name in ASCII is compared in place and not copied.
    pub fn has_form(self, name: &[u8], form: &[u8]) -> bool {
        match self != Folding::None && name.is_ascii() {
            true => name.eq_ignore_ascii_case(form),
            false => *self.form(name) == *form,
        }
    }

    /// Returns the form in which a name is compared and hashed.
    pub fn form(self, name: &[u8]) -> Cow<'_, [u8]> {
        if self == Folding::None {
            return name.into();
        }
        if name.is_ascii() {
            return match name.iter().any(u8::is_ascii_uppercase) {
                true => name.to_ascii_lowercase().into(),
                false => name.into(),
            };
        }
        match std::str::from_utf8(name) {
            Ok(text) => folded(text).into_bytes().into(),
            Err(_) => name.into(),
        }
    }
}

fn folded(name: &str) -> String {
    let (mut folded, mut run) = (String::with_capacity(name.len()), String::new());
    for c in name.chars() {
        let (is_ignored, is_known) = (contains(IGNORED, c), contains(ASSIGNED, c));
        if !is_ignored && is_known {
            // The second folding is needed for characters that have no folding, but whose
            // decomposition can be folded.
            run.extend(std::iter::once(c).default_case_fold().nfd().default_case_fold());
            continue;
        }
        folded.extend(run.nfd());
        run.clear();
        if !is_ignored {
            folded.push(c);
        }
    }
    folded.extend(run.nfd());
    folded
}

fn contains(ranges: &[(char, char)], c: char) -> bool {
    let at = ranges.partition_point(|(_, end)| *end < c);
    ranges.get(at).is_some_and(|(start, _)| *start <= c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(name: &str) -> String {
        String::from_utf8(Folding::Lenient.form(name.as_bytes()).into_owned()).unwrap()
    }

    #[test]
    fn names_that_differ_in_case_or_composition_have_one_form() {
        for (one, other) in [
            ("README.Txt", "readme.TXT"),
            ("stra\u{df}e", "STRASSE"),
            ("\u{c4}pfel", "a\u{308}pfel"),
            ("e\u{301}\u{323}", "E\u{323}\u{301}"),
            ("\u{ac00}", "\u{1100}\u{1161}"),
            ("\u{fb01}", "FI"),
            ("a\u{200d}b\u{feff}", "ab"),
            ("\u{3a3}", "\u{3c2}"),
            ("\u{13a0}", "\u{ab70}"),
        ] {
            assert_eq!(form(one), form(other), "{one} {other}");
        }
    }

    #[test]
    fn other_names_keep_forms_of_their_own() {
        // The cases are the dotless i, an ignored character between two marks, and a letter of
        // Unicode 14 (U+2C2F).
        for (one, other) in [
            ("I", "\u{131}"),
            ("q\u{301}\u{34f}\u{323}", "q\u{323}\u{301}"),
            ("\u{2c2f}", "\u{2c5f}"),
        ] {
            assert_ne!(form(one), form(other), "{one} {other}");
        }
        assert_eq!(Folding::None.form(b"A"), &b"A"[..]);
    }

    #[test]
    fn a_name_that_is_not_utf_8_is_its_own_form_and_strictly_refused() {
        for name in [&b"A\xff"[..], b"\xed\xa0\x80A", b"\xc0\xafB"] {
            assert_eq!(Folding::Lenient.form(name), name);
            assert!(Folding::Lenient.permits(name) && !Folding::Strict.permits(name));
        }
        assert!(Folding::Strict.permits("\u{e9}".as_bytes()));
    }

    #[test]
    fn the_tables_are_those_of_unicode_12_1() {
        let count = |ranges: &[(char, char)]| -> u32 {
            ranges.iter().map(|(start, end)| u32::from(*end) - u32::from(*start) + 1).sum()
        };
        assert_eq!(count(IGNORED), 4173);
        // The terms of the sum are the numbers of characters, control codes, code points for
        // private use, and noncharacters. Surrogates are left out, because no name in UTF-8
        // contains them.
        assert_eq!(count(ASSIGNED), 137_929 + 65 + 137_468 + 66);
        assert!(contains(ASSIGNED, '\u{32ff}') && !contains(ASSIGNED, '\u{1fa74}'));
    }
}
