//! Parses paths into components, without a file system.

use lanefs_ext4::{Error, InvalidArgument};
use std::borrow::Cow;

/// The maximum length in bytes of a path, without the targets of its symbolic links.
pub const MAX_PATH: usize = 4095;
/// The maximum length of a name, in bytes.
pub const MAX_NAME: usize = 255;
/// The maximum number of symbolic links that one walk follows.
pub const MAX_SYMLINKS: u32 = 40;

/// The last component of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Last<'a> {
    /// A name other than "." and ".."; whether a slash follows it.
    Name(Cow<'a, [u8]>, Slash),
    /// "."
    Dot,
    /// ".."
    DotDot,
    /// The path has only slashes and no component, so it refers to the root.
    Root,
}

/// Whether a slash follows the last name. If so, the name must refer to a directory.
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

/// Returns three values: the first component of `path`, the rest of the path without the slashes
/// after this component, and whether a slash follows the component. Returns `None` if there is no
/// component. The path must not begin with a slash ([`without_slashes`]).
pub(crate) fn first(path: &[u8]) -> Option<(Component<'_>, &[u8], Slash)> {
    let end = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
    cut(path, end)
}

/// Works like [`first`], for a path whose first component ends at `end`.
#[inline(always)]
pub(crate) fn cut(path: &[u8], end: usize) -> Option<(Component<'_>, &[u8], Slash)> {
    if path.is_empty() {
        return None;
    }
    let (name, rest) = path.split_at(end);
    let slash = if rest.is_empty() { Slash::None } else { Slash::Trailing };
    let component = match name {
        b"." => Component::Dot,
        b".." => Component::DotDot,
        name => Component::Name(name),
    };
    Some((component, without_slashes(rest), slash))
}

/// Returns `path` without the slashes at its start.
#[inline]
pub(crate) fn without_slashes(path: &[u8]) -> &[u8] {
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

/// Fails if `path` is empty, too long or contains NUL.
pub(crate) fn check_path(path: &[u8]) -> Result<(), Error> {
    if path.is_empty() {
        return Err(Error::NotFound);
    }
    if path.len() > MAX_PATH {
        return Err(Error::NameTooLong);
    }
    if path.contains(&0) {
        return Err(InvalidArgument::PathBytes.into());
    }
    Ok(())
}

/// Fails unless `name` can be the name of an entry to be created or removed.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Error> {
    match name {
        b"" => return Err(Error::NotFound),
        b"." | b".." => return Err(InvalidArgument::DotName.into()),
        _ => {}
    }
    if name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return Err(InvalidArgument::NameBytes.into());
    }
    if name.len() > MAX_NAME {
        return Err(Error::NameTooLong);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(path: &[u8]) -> Vec<(Component<'_>, Slash)> {
        let (mut path, mut components) = (without_slashes(path), Vec::new());
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
    fn a_trailing_slash_is_reported() {
        assert_eq!(all(b"a//"), [(Component::Name(b"a"), Slash::Trailing)]);
    }

    #[test]
    fn slashes_alone_have_no_component() {
        assert!(all(b"///").is_empty());
        assert!(all(b"").is_empty());
    }

    #[test]
    fn invalid_names_are_refused() {
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        assert!(check_name(&[b'x'; 255]).is_ok());
        assert!(check_path(&[b'x'; 4096]).is_err());
    }
}
