//! Parses paths into components, without a file system.

use lanefs_ext4::Error;
use std::borrow::Cow;

/// The longest path, and the longest symbolic link that is followed, in bytes.
pub const MAX_PATH: usize = 4095;
/// The longest name, in bytes.
pub const MAX_NAME: usize = 255;
/// The most symbolic links that one walk follows.
pub const MAX_SYMLINKS: u32 = 40;

/// The last component of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Last<'a> {
    /// A name in the directory, followed by a slash or not.
    Name(Cow<'a, [u8]>, Slash),
    /// "."
    Dot,
    /// ".."
    DotDot,
    /// No component, only slashes: the root.
    Root,
}

/// Whether a slash follows the last name, which then has to be a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slash {
    /// A slash follows.
    Trailing,
    /// No slash follows.
    None,
}

impl Slash {
    /// Returns whether a slash follows.
    pub fn follows(self) -> bool {
        self == Slash::Trailing
    }
}

/// One component of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Component<'a> {
    Name(&'a [u8]),
    Dot,
    DotDot,
}

/// Returns the first component of `path`, the rest after its slashes, and whether a slash followed.
/// `None` if there is no component. Skips leading slashes.
#[inline(always)]
pub(crate) fn first(path: &[u8]) -> Option<(Component<'_>, &[u8], Slash)> {
    let path = without_slashes(path);
    if path.is_empty() {
        return None;
    }
    let (name, rest) = path.split_at(before_slash(path));
    let slash = if rest.is_empty() { Slash::None } else { Slash::Trailing };
    let component = match name {
        b"." => Component::Dot,
        b".." => Component::DotDot,
        name => Component::Name(name),
    };
    Some((component, without_slashes(rest), slash))
}

#[inline]
fn without_slashes(path: &[u8]) -> &[u8] {
    match path {
        [b'/', b'/', rest @ ..] => without_more_slashes(rest),
        [b'/', rest @ ..] => rest,
        _ => path,
    }
}

#[cold]
fn without_more_slashes(mut path: &[u8]) -> &[u8] {
    while let [b'/', rest @ ..] = path {
        path = rest;
    }
    path
}

/// Returns the number of bytes before the first slash. Compares eight bytes at a time.
#[inline]
fn before_slash(path: &[u8]) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let (words, rest) = path.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let other = u64::from_le_bytes(*word) ^ (ONES * u64::from(b'/'));
        // The lowest byte whose highest bit gets set is the first one that is zero.
        let same = other.wrapping_sub(ONES) & !other & (ONES << 7);
        if same != 0 {
            return at * 8 + same.trailing_zeros() as usize / 8;
        }
    }
    let before = words.len() * 8;
    before + rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len())
}

/// Fails if `path` is empty, too long or contains NUL.
pub(crate) fn check_path(path: &[u8]) -> Result<(), Error> {
    if path.is_empty() {
        return Err(Error::NotFound);
    }
    if path.len() > MAX_PATH {
        return Err(Error::NameTooLong);
    }
    if path.contains(&0) {
        return Err(Error::InvalidArgument { what: "a path with a NUL byte" });
    }
    Ok(())
}

/// Fails unless `name` can be the name of an entry to be created or removed.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Error> {
    match name {
        b"" => return Err(Error::NotFound),
        b"." | b".." => return Err(Error::InvalidArgument { what: "the name is . or .." }),
        _ => {}
    }
    if name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return Err(Error::InvalidArgument { what: "a name with a slash or a NUL byte" });
    }
    if name.len() > MAX_NAME {
        return Err(Error::NameTooLong);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut path: &[u8]) -> Vec<(Component<'_>, Slash)> {
        let mut components = Vec::new();
        while let Some((component, rest, slash)) = first(path) {
            components.push((component, slash));
            path = rest;
        }
        components
    }

    #[test]
    fn repeated_slashes_count_once() {
        let expected = [
            (Component::Name(b"a"), Slash::Trailing),
            (Component::Dot, Slash::Trailing),
            (Component::DotDot, Slash::Trailing),
            (Component::Name(b"..."), Slash::None),
        ];
        assert_eq!(all(b"//a///.//..//..."), expected);
    }

    #[test]
    fn the_first_slash_ends_a_component_wherever_it_is() {
        for end in 0..40 {
            for more in [&b""[..], b"/", b"//.0/", b"/ends/after/many/more/bytes"] {
                // A slash, bytes that differ from it by one bit, and the bytes before and after it
                // in ASCII.
                let name: Vec<u8> = (0..end).map(|n| b"./0\xafo?\x27"[n % 7]).collect();
                let name: Vec<u8> =
                    name.into_iter().map(|b| if b == b'/' { 0 } else { b }).collect();
                assert_eq!(before_slash(&[&name[..], more].concat()), end, "{name:?} {more:?}");
            }
        }
    }

    #[test]
    fn a_trailing_slash_is_told() {
        assert_eq!(all(b"a//"), [(Component::Name(b"a"), Slash::Trailing)]);
    }

    #[test]
    fn slashes_alone_have_no_component() {
        assert!(all(b"///").is_empty());
        assert!(all(b"").is_empty());
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        assert!(check_name(&[b'x'; 255]).is_ok());
        assert!(check_path(&[b'x'; 4096]).is_err());
    }
}
