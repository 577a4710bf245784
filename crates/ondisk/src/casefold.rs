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
mod tests;
