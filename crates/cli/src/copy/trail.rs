//! The path of a file as a chain of names.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A path. The paths of all entries of a directory share the directory's path, so each path takes
/// memory only for its last name, at any depth.
#[derive(Debug, Clone)]
pub struct Trail(Arc<Link>);

#[derive(Debug)]
struct Link {
    above: Option<Arc<Link>>,
    name: Box<[u8]>,
}

impl Drop for Link {
    /// Drops the chain in a loop. A recursive drop could overflow the thread's stack, because a
    /// tree of an image may be very deep.
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut link) = above.and_then(Arc::into_inner) {
            above = link.above.take();
        }
    }
}

impl Trail {
    /// Creates a trail from a whole path.
    pub fn new(path: &Path) -> Trail {
        Trail(Arc::new(Link { above: None, name: path.as_os_str().as_encoded_bytes().into() }))
    }

    /// Returns the path of `name` in this directory.
    pub fn join(&self, name: &[u8]) -> Trail {
        Trail(Arc::new(Link { above: Some(self.0.clone()), name: name.into() }))
    }

    /// Returns the path in one piece.
    pub fn path(&self) -> PathBuf {
        let mut links = vec![&self.0];
        while let Some(above) = links.last().and_then(|link| link.above.as_ref()) {
            links.push(above);
        }
        let mut path = Vec::new();
        for link in links.iter().rev() {
            if !path.is_empty() && !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(&link.name);
        }
        OsString::from_vec(path).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_joined_by_slashes() {
        for (top, path) in [("/", "/a/b"), ("/x", "/x/a/b"), ("x/", "x/a/b"), ("", "a/b")] {
            assert_eq!(Trail::new(Path::new(top)).join(b"a").join(b"b").path(), Path::new(path));
        }
    }

    #[test]
    fn a_deep_path_is_dropped_without_recursion() {
        let mut trail = Trail::new(Path::new("/"));
        for _ in 0..1_000_000 {
            trail = trail.join(b"d");
        }
        assert_eq!(trail.path().as_os_str().len(), 2_000_000);
    }
}
