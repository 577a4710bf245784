//! Shell patterns, as fnmatch(3) matches them.

/// A pattern with `*`, `?`, `[...]` and `\`. A slash and a leading dot are ordinary characters, as
/// in find(1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    /// A character. A byte that is not part of valid UTF-8 counts as one character.
    One(Char),
    Any,
    Many,
    Class {
        negated: bool,
        ranges: Vec<(Char, Char)>,
    },
}

/// A Unicode character, or a value above all Unicode characters, which represents a single byte.
type Char = u32;

/// The first value that represents a byte; all smaller values are characters.
const BYTES: Char = 0x11_0000;

/// How letters are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// `a` and `A` differ.
    Differs,
    /// `a` and `A` are equal.
    Ignored,
}

/// Returns the first character of `text` and the rest.
fn first(text: &[u8]) -> Option<(Char, &[u8])> {
    let byte = *text.first()?;
    for len in 1..=4 {
        let head = text.get(..len).and_then(|head| std::str::from_utf8(head).ok());
        if let Some(letter) = head.and_then(|head| head.chars().next()) {
            return Some((letter.into(), text.get(len..)?));
        }
    }
    Some((BYTES + u32::from(byte), text.get(1..)?))
}

/// Returns the characters of `text`.
fn characters(mut text: &[u8], case: Case) -> Vec<Char> {
    let mut all = Vec::with_capacity(text.len());
    while let Some((letter, rest)) = first(text) {
        text = rest;
        all.push(folded(letter, case));
    }
    all
}

fn folded(letter: Char, case: Case) -> Char {
    match (case, char::from_u32(letter)) {
        (Case::Ignored, Some(letter)) => {
            let mut lower = letter.to_lowercase();
            match (lower.next(), lower.next()) {
                (Some(one), None) => one.into(),
                _ => letter.into(),
            }
        }
        _ => letter,
    }
}

impl Glob {
    /// Parses a pattern. A bracket without its end is an ordinary character.
    pub fn new(pattern: &[u8], case: Case) -> Glob {
        let letters = characters(pattern, case);
        let mut pieces = Vec::new();
        let mut rest = letters.as_slice();
        while let Some((letter, after)) = rest.split_first() {
            rest = after;
            pieces.push(match char::from_u32(*letter) {
                Some('*') => Piece::Many,
                Some('?') => Piece::Any,
                Some('[') => match class(after) {
                    Some((class, after)) => {
                        rest = after;
                        class
                    }
                    None => Piece::One(*letter),
                },
                Some('\\') => match after.split_first() {
                    Some((letter, after)) => {
                        rest = after;
                        Piece::One(*letter)
                    }
                    None => Piece::One(*letter),
                },
                _ => Piece::One(*letter),
            });
        }
        Glob(pieces)
    }

    /// Returns whether the pattern matches all of `text`. The running time is at most proportional
    /// to the product of both lengths.
    pub fn matches(&self, text: &[u8], case: Case) -> bool {
        let text = characters(text, case);
        let (mut piece, mut at) = (0, 0);
        // The last `*`, and the end of the characters that it matches.
        let mut star: Option<(usize, usize)> = None;
        loop {
            match (self.0.get(piece), text.get(at)) {
                (None, None) => return true,
                (Some(Piece::Many), _) => {
                    star = Some((piece, at));
                    piece += 1;
                    continue;
                }
                (Some(found), Some(letter)) if found.matches(*letter) => {
                    (piece, at) = (piece + 1, at + 1);
                    continue;
                }
                _ => {}
            }
            // If the piece does not match, the last `*` takes one more character, and the pieces
            // after the `*` are tried again.
            match star {
                Some((many, end)) if end < text.len() => {
                    star = Some((many, end + 1));
                    (piece, at) = (many + 1, end + 1);
                }
                _ => return false,
            }
        }
    }
}

impl Piece {
    fn matches(&self, letter: Char) -> bool {
        match self {
            Piece::One(own) => *own == letter,
            Piece::Any => true,
            Piece::Many => false,
            Piece::Class { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&letter)) != *negated
            }
        }
    }
}

/// Parses a bracket expression after its `[`. Returns the expression and the rest of the pattern.
fn class(pattern: &[Char]) -> Option<(Piece, &[Char])> {
    let is = |letter: Option<&Char>, wanted: char| letter == Some(&Char::from(wanted));
    let negated = is(pattern.first(), '!') || is(pattern.first(), '^');
    let mut at = usize::from(negated);
    let mut ranges = Vec::new();
    loop {
        let mut low = *pattern.get(at)?;
        // A closing bracket that comes first is an ordinary character.
        if low == Char::from(']') && !ranges.is_empty() {
            return Some((Piece::Class { negated, ranges }, pattern.get(at + 1..)?));
        }
        if low == Char::from('\\') {
            at += 1;
            low = *pattern.get(at)?;
        }
        let is_range = is(pattern.get(at + 1), '-') && !is(pattern.get(at + 2), ']');
        match (is_range, pattern.get(at + 2)) {
            (true, Some(high)) => {
                ranges.push((low, *high));
                at += 3;
            }
            _ => {
                ranges.push((low, low));
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, matching: &[&[u8]], other: &[&[u8]]) {
        let glob = Glob::new(pattern.as_bytes(), Case::Differs);
        for text in matching {
            assert!(glob.matches(text, Case::Differs), "{pattern} {text:?}");
        }
        for text in other {
            assert!(!glob.matches(text, Case::Differs), "{pattern} {text:?}");
        }
    }

    #[test]
    fn patterns_match_as_in_the_shell() {
        check("*.c", &[b"a.c", b".c", b"a.b.c", b"x/y.c"], &[b"a.h", b"a.c.h", b""]);
        check("a?c", &[b"abc", "a\u{e9}c".as_bytes(), b"a\xffc"], &[b"ac", b"abbc"]);
        check("[a-c]x", &[b"ax", b"cx"], &[b"dx", b"x", b"-x"]);
        check("[!a-c]x", &[b"dx", b"-x"], &[b"ax"]);
        check("[]a]", &[b"]", b"a"], &[b"b"]);
        check("[a-]", &[b"a", b"-"], &[b"b"]);
        check("[a", &[b"[a"], &[b"a"]);
        check(r"\*", &[b"*"], &[b"a"]);
        check(r"[\]]", &[b"]"], &[b"\\"]);
        check("a*b*c", &[b"abc", b"axxbxxc", b"abcbc"], &[b"acb", b"ab"]);
        check("", &[b""], &[b"a"]);
        check("*", &[b"", b"a"], &[]);
    }

    #[test]
    fn case_is_ignored_on_request() {
        let glob = Glob::new("*.JP[EF]G".as_bytes(), Case::Ignored);
        assert!(glob.matches(b"a.jpeg", Case::Ignored));
        assert!(!glob.matches(b"a.jpg", Case::Ignored));
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let glob = Glob::new("a*".repeat(50).as_bytes(), Case::Differs);
        assert!(!glob.matches(&[b"a".repeat(49), b"b".repeat(5000)].concat(), Case::Differs));
    }
}
