//! Parses paths into components, without a file system.

use lanefs_ext4::Error;

/// The longest path, and the longest symbolic link that is followed, in bytes.
pub const MAX_PATH: usize = 4095;
/// The longest name, in bytes.
pub const MAX_NAME: usize = 255;
/// The most symbolic links that one walk follows.
pub const MAX_SYMLINKS: u32 = 40;

/// The last component of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Last {
    /// A name in the directory, followed by a slash or not.
    Name(Vec<u8>, Slash),
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
pub(crate) fn first(path: &[u8]) -> Option<(Component<'_>, &[u8], Slash)> {
    let path = path.trim_prefix_slashes();
    if path.is_empty() {
        return None;
    }
    let end = path.iter().position(|&b| b == b'/').unwrap_or(path.len());
    let (name, rest) = path.split_at(end);
    let slash = if rest.is_empty() { Slash::None } else { Slash::Trailing };
    let component = match name {
        b"." => Component::Dot,
        b".." => Component::DotDot,
        name => Component::Name(name),
    };
    Some((component, rest.trim_prefix_slashes(), slash))
}

trait TrimSlashes {
    fn trim_prefix_slashes(&self) -> &Self;
}

impl TrimSlashes for [u8] {
    fn trim_prefix_slashes(&self) -> &[u8] {
        let start = self.iter().position(|&b| b != b'/').unwrap_or(self.len());
        self.get(start..).unwrap_or_default()
    }
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

/// Fails if `name` is invalid for a new entry, or for one to be removed.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Error> {
    match name {
        b"" => return Err(Error::NotFound),
        b"." | b".." => return Err(Error::InvalidArgument { what: "the name is . or .." }),
        _ => {}
    }
    if name.contains(&b'/') || name.contains(&0) {
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
