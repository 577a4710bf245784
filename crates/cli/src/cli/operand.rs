//! Operands: paths in images, and paths of the host.

use super::Failure;
use lanefs_device::Access;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The prefix of an array's name.
const ARRAY: &[u8] = lanefs_raid5::PREFIX.as_bytes();

/// How a command accesses an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Intent {
    /// Nothing is written.
    Read,
    /// The image is changed.
    Change,
}

impl Intent {
    pub fn access(self) -> Access {
        match self {
            Intent::Read => Access::ReadOnly,
            Intent::Change => Access::ReadWrite,
        }
    }
}

/// A path in an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagePath {
    /// The image file or block device, on the host.
    pub image: PathBuf,
    /// The path in the image, from the root of the image.
    pub path: PathBuf,
}

/// The source or destination of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    /// `IMAGE:/path`
    Image(ImagePath),
    /// A path of the host.
    Host(PathBuf),
    /// `-`: standard input or output.
    Standard,
}

/// Splits `IMAGE:/path` at the first `:/`; a trailing colon stands for the root. In an array's
/// name, such as `md:/dev/sda,/dev/sdb`, neither the colon of `md:` nor a colon after a backslash
/// ends the name.
fn split(operand: &[u8]) -> Option<ImagePath> {
    let from = if operand.starts_with(ARRAY) { ARRAY.len() } else { 0 };
    let rest = operand.get(from..)?;
    let is_name = |at: usize| from > 0 && at > 0 && rest.get(at - 1) == Some(&b'\\');
    let colons = rest.windows(2).enumerate().filter(|(_, pair)| *pair == b":/");
    let colon = colons.map(|(at, _)| at).find(|at| !is_name(*at));
    let last = rest.len().checked_sub(1).filter(|at| rest.ends_with(b":") && !is_name(*at));
    let colon = colon.or(last)? + from;
    let (image, path) = operand.split_at(colon);
    if image.is_empty() {
        return None;
    }
    let path = match path {
        b":" => b"/",
        path => path.get(1..).unwrap_or_default(),
    };
    let path_of = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
    Some(ImagePath { image: path_of(image), path: path_of(path) })
}

impl From<OsString> for Operand {
    fn from(operand: OsString) -> Operand {
        let bytes = operand.as_bytes();
        if bytes == b"-" {
            return Operand::Standard;
        }
        // An operand that starts with "./" is a path of the host.
        let place = if bytes.starts_with(b"./") { None } else { split(bytes) };
        place.map_or_else(|| Operand::Host(operand.into()), Operand::Image)
    }
}

/// Converts an operand of a command that accepts only paths in images. An operand without a path,
/// such as `disk.img`, is the name of an image and means the root of this image.
impl From<OsString> for ImagePath {
    fn from(operand: OsString) -> ImagePath {
        let whole = || ImagePath { image: operand.clone().into(), path: "/".into() };
        split(operand.as_bytes()).unwrap_or_else(whole)
    }
}

impl ImagePath {
    /// Returns the operand for the file at path `below`, relative to this directory. If `below` is
    /// empty, returns the directory itself.
    pub fn below(&self, below: &[u8]) -> ImagePath {
        if below.is_empty() { self.clone() } else { self.join(OsStr::from_bytes(below)) }
    }

    /// Returns the operand `IMAGE:/path`, with the bytes of the path unchanged.
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.image.as_os_str().as_bytes(), b":", self.path.as_os_str().as_bytes()].concat()
    }

    /// Returns the image with the intent, as [`Images::open`](super::Images::open) takes them.
    pub fn wanted(&self, intent: Intent) -> (&Path, Intent) {
        (&self.image, intent)
    }

    /// Converts an error that the library returned for a path in this image.
    pub fn failure(&self, error: lanefs::Error) -> Failure {
        Failure::within(self.image.display(), &error)
    }

    /// Returns the operand for `name` in this directory.
    pub fn join(&self, name: impl AsRef<Path>) -> ImagePath {
        ImagePath { image: self.image.clone(), path: self.path.join(name) }
    }
}

impl Operand {
    /// Returns the path in an image, if the operand is one.
    pub fn place(&self) -> Option<&ImagePath> {
        match self {
            Operand::Image(place) => Some(place),
            Operand::Host(_) | Operand::Standard => None,
        }
    }

    /// Returns the path, if the operand is a path of the host.
    pub fn host(&self) -> Option<&Path> {
        match self {
            Operand::Host(path) => Some(path),
            Operand::Image(_) | Operand::Standard => None,
        }
    }

    /// Returns whether the path would name a file in an image if it did not start with "./".
    pub fn is_escaped(&self) -> bool {
        self.host().is_some_and(|path| split(path.as_os_str().as_bytes()).is_some())
    }
}

impl fmt::Display for ImagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.image.display(), self.path.display())
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Image(place) => place.fmt(f),
            Operand::Host(path) => path.display().fmt(f),
            Operand::Standard => f.write_str("-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operand(text: &str) -> Operand {
        Operand::from(OsString::from(text))
    }

    fn place(image: &str, path: &str) -> ImagePath {
        ImagePath { image: image.into(), path: path.into() }
    }

    #[test]
    fn the_first_colon_before_a_slash_splits() {
        assert_eq!(operand("a.img:/b"), Operand::Image(place("a.img", "/b")));
        assert_eq!(operand("/x/a.img:/b:/c"), Operand::Image(place("/x/a.img", "/b:/c")));
        assert_eq!(operand("a:b.img:/c"), Operand::Image(place("a:b.img", "/c")));
    }

    #[test]
    fn a_trailing_colon_is_the_root() {
        assert_eq!(operand("a.img:"), Operand::Image(place("a.img", "/")));
        assert_eq!(operand("a.img:/"), Operand::Image(place("a.img", "/")));
    }

    #[test]
    fn the_colons_of_an_array_belong_to_its_name() {
        let array = "md:/dev/sda,/dev/sdb,missing";
        assert_eq!(operand(&format!("{array}:/a")), Operand::Image(place(array, "/a")));
        assert_eq!(operand("md:a,b,c:"), Operand::Image(place("md:a,b,c", "/")));
        let array = "md:11111111:22222222:33333333:44444444,/srv";
        assert_eq!(operand(&format!("{array}:/a")), Operand::Image(place(array, "/a")));
        assert_eq!(ImagePath::from(OsString::from("md:/a,/b,/c")), place("md:/a,/b,/c", "/"));
        let array = r"md:a\:/x,b\:,c\,d";
        assert_eq!(operand(&format!("{array}:/f")), Operand::Image(place(array, "/f")));
        assert_eq!(operand(r"md:a,b,c\:"), Operand::Host(r"md:a,b,c\:".into()));
    }

    #[test]
    fn a_dot_and_a_slash_escape() {
        assert_eq!(operand("./x:/y"), Operand::Host("./x:/y".into()));
        assert!(operand("./x:/y").is_escaped() && !operand("./x").is_escaped());
        assert_eq!(operand("../x:/y"), Operand::Image(place("../x", "/y")));
    }

    #[test]
    fn the_rest_is_of_the_host() {
        for text in ["a", "/a/b", "a:b", ":", ":/a"] {
            assert_eq!(operand(text), Operand::Host(text.into()), "{text}");
        }
        assert_eq!(operand("-"), Operand::Standard);
    }

    #[test]
    fn an_operand_that_must_be_in_an_image_is_its_root() {
        assert_eq!(ImagePath::from(OsString::from("a.img")), place("a.img", "/"));
        assert_eq!(ImagePath::from(OsString::from("./a.img:/b")), place("./a.img", "/b"));
    }
}
