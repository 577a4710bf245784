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
        members: Vec<Member>,
    },
}

/// A character class: its name, and whether it has a character.
type Class = (&'static str, fn(char) -> bool);

/// The character classes of POSIX.
const CLASSES: [Class; 12] = [
    ("alnum", char::is_alphanumeric),
    ("alpha", char::is_alphabetic),
    ("blank", |letter| matches!(letter, ' ' | '\t')),
    ("cntrl", char::is_control),
    ("digit", |letter| letter.is_ascii_digit()),
    ("graph", |letter| !letter.is_control() && !letter.is_whitespace()),
    ("lower", char::is_lowercase),
    ("print", |letter| !letter.is_control()),
    ("punct", |letter| {
        !letter.is_alphanumeric() && !letter.is_control() && !letter.is_whitespace()
    }),
    ("space", char::is_whitespace),
    ("upper", char::is_uppercase),
    ("xdigit", |letter| letter.is_ascii_hexdigit()),
];

/// A member of a bracket expression.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Member {
    Range(Char, Char),
    /// A character class, by its place in `CLASSES`.
    Named(usize),
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
        let text = characters(text, Case::Differs);
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
                (Some(found), Some(letter)) if found.matches(*letter, case) => {
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
    fn matches(&self, letter: Char, case: Case) -> bool {
        match self {
            Piece::One(own) => *own == folded(letter, case),
            Piece::Any => true,
            Piece::Many => false,
            Piece::Class { negated, members } => {
                members.iter().any(|member| member.matches(letter, case)) != *negated
            }
        }
    }
}

impl Member {
    /// Returns whether this is a member of the expression. A class tells upper case from lower case
    /// even where other letters are compared without.
    fn matches(&self, letter: Char, case: Case) -> bool {
        match self {
            Member::Range(low, high) => (*low..=*high).contains(&folded(letter, case)),
            Member::Named(class) => CLASSES
                .get(*class)
                .zip(char::from_u32(letter))
                .is_some_and(|((_, holds), letter)| holds(letter)),
        }
    }
}

/// Parses a bracket expression after its `[`. Returns the expression and the rest of the pattern.
fn class(pattern: &[Char]) -> Option<(Piece, &[Char])> {
    let is = |letter: Option<&Char>, wanted: char| letter == Some(&Char::from(wanted));
    let negated = is(pattern.first(), '!') || is(pattern.first(), '^');
    let mut rest = pattern.get(usize::from(negated)..)?;
    let mut members = Vec::new();
    let mut is_valid = true;
    loop {
        // A closing bracket that comes first is an ordinary character.
        if is(rest.first(), ']') && !(members.is_empty() && is_valid) {
            // With a class or an element that does not exist, the pattern matches nothing.
            let (negated, members) = if is_valid { (negated, members) } else { (false, vec![]) };
            return Some((Piece::Class { negated, members }, rest.get(1..)?));
        }
        let member = member(rest)?;
        rest = member.1;
        let low = match member.0 {
            Some(Member::Range(low, _)) => low,
            named => {
                is_valid &= named.is_some();
                members.extend(named);
                continue;
            }
        };
        let mut high = low;
        if is(rest.first(), '-') && !is(rest.get(1), ']') {
            let end = self::member(rest.get(1..)?)?;
            rest = end.1;
            match end.0 {
                Some(Member::Range(end, _)) => high = end,
                _ => is_valid = false,
            }
        }
        members.push(Member::Range(low, high));
    }
}

/// Parses a member of a bracket expression: a character, `[:class:]`, `[=c=]` or `[.c.]`. Returns
/// the member, or `None` if it does not exist, and the rest of the pattern.
fn member(pattern: &[Char]) -> Option<(Option<Member>, &[Char])> {
    let (&letter, rest) = pattern.split_first()?;
    let one = |letter| Some(Member::Range(letter, letter));
    match char::from_u32(letter) {
        Some('\\') => rest.split_first().map(|(&letter, rest)| (one(letter), rest)),
        Some('[') => {
            let kind = rest.first().and_then(|kind| char::from_u32(*kind));
            let Some(kind) = kind.filter(|kind| matches!(kind, ':' | '=' | '.')) else {
                return Some((one(letter), rest));
            };
            let inside = rest.get(1..)?;
            let end = [Char::from(kind), Char::from(']')];
            let Some(len) = inside.windows(2).position(|two| two == end) else {
                return Some((one(letter), rest));
            };
            let (inside, rest) = inside.split_at_checked(len)?;
            let member = match (kind, inside) {
                (':', name) => {
                    let is_name =
                        |class: &str| class.chars().map(Char::from).eq(name.iter().copied());
                    CLASSES.iter().position(|(class, _)| is_name(class)).map(Member::Named)
                }
                (_, &[letter]) => one(letter),
                _ => None,
            };
            Some((member, rest.get(2..)?))
        }
        _ => Some((one(letter), rest)),
    }
}

#[cfg(test)]
mod tests;
