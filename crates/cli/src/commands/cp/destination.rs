//! The destination of `lanefs cp` and `lanefs mv`: a directory, and possibly a name in it.

use crate::cli::{Failure, ImagePath};
use crate::copy::{ImageNode, ImageTree, Trail};
use lanefs::{FileSystem, Follow, Metadata};
use lanefs_vfs::Slash;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// How to interpret the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aim {
    /// The destination is a directory, which gets the copy.
    Within,
    /// The destination is the name of the copy.
    Itself,
    /// [`Aim::Within`] if the destination is a directory, else [`Aim::Itself`].
    Either,
}

/// The destination of copies: a directory and, if only one copy is made, the name of the copy in
/// it.
pub struct Destination<N> {
    pub dir: N,
    pub name: Option<Vec<u8>>,
    /// Whether a slash follows the name, which then permits only a directory.
    pub slash: Slash,
}

fn slash_after(path: &Path) -> Slash {
    if path.as_os_str().as_bytes().ends_with(b"/") { Slash::Trailing } else { Slash::None }
}

impl Destination<ImageNode> {
    pub fn find(
        aim: Aim,
        tree: &ImageTree<'_>,
        place: &ImagePath,
        fs: &FileSystem,
    ) -> Result<Self, Failure> {
        let is_dir = match fs.metadata(&place.path) {
            Ok(metadata) => metadata.is_dir(),
            Err(error) if error.is_not_found() => false,
            Err(error) => return Err(place.failure(error)),
        };
        if choose(aim, is_dir, &place.path, place)? == Aim::Within {
            let dir = tree.find(&place.path, Follow::Links)?;
            return Ok(Destination { dir, name: None, slash: Slash::None });
        }
        let (dir, name) = split(&place.path, place)?;
        let dir = tree.find(&dir, Follow::Links)?;
        Ok(Destination { dir, name: Some(name), slash: slash_after(&place.path) })
    }

    /// Returns this destination, which was found at `place`. If the copy's path is a symbolic link,
    /// returns the link's target instead, unless this file has several names and `stays` says that
    /// the link is replaced: a copy that keeps hard links leaves its other names alone.
    ///
    /// # Errors
    /// If the link leads to no file.
    pub fn behind_link(
        self,
        tree: &ImageTree<'_>,
        place: &ImagePath,
        fs: &FileSystem,
        stays: impl Fn(&Metadata) -> bool,
    ) -> Result<Self, Failure> {
        let failed = |error| place.failure(error);
        let is_link = |path: &Path| fs.symlink_metadata(path).is_ok_and(|found| found.is_symlink());
        if self.name.is_none() || !is_link(&place.path) {
            return Ok(self);
        }
        // This call fails if the links form a circle, so the loop below ends.
        let found = fs.metadata(&place.path).map_err(failed)?;
        if found.links() > 1 && stays(&found) {
            return Ok(self);
        }
        let mut path = place.path.clone();
        while is_link(&path) {
            let target = fs.read_link(&path).map_err(failed)?;
            path = path.parent().unwrap_or(Path::new("/")).join(target);
        }
        let (dir, name) = split(&path, place)?;
        Ok(Destination {
            dir: tree.find(&dir, Follow::Links)?,
            name: Some(name),
            slash: self.slash,
        })
    }
}

impl Destination<Trail> {
    pub fn on_host(aim: Aim, path: &Path) -> Result<Self, Failure> {
        if choose(aim, path.is_dir(), path, path.display())? == Aim::Within {
            return Ok(Destination { dir: Trail::new(path), name: None, slash: Slash::None });
        }
        let (dir, name) = split(path, path.display())?;
        if !dir.is_dir() {
            return Err(Failure::new(dir.display(), "not a directory"));
        }
        Ok(Destination { dir: Trail::new(&dir), name: Some(name), slash: slash_after(path) })
    }

    /// Returns the path of the copy, if only one copy is made.
    pub fn path(&self) -> Option<PathBuf> {
        self.name.as_ref().map(|name| self.dir.join(name).path())
    }

    /// Returns this destination. If the copy's path is a symbolic link, returns the link's target
    /// instead.
    ///
    /// # Errors
    /// If the link leads to no file.
    pub fn behind_link(self) -> Result<Self, Failure> {
        let Some(path) = self.path().filter(|path| path.is_symlink()) else { return Ok(self) };
        let target = path.canonicalize().map_err(Failure::on_host(&path))?;
        let (dir, name) = split(&target, path.display())?;
        Ok(Destination { dir: Trail::new(&dir), name: Some(name), slash: self.slash })
    }
}

fn choose(
    aim: Aim,
    is_dir: bool,
    path: &Path,
    shown: impl std::fmt::Display,
) -> Result<Aim, Failure> {
    match aim {
        Aim::Within | Aim::Either if is_dir => Ok(Aim::Within),
        _ if !is_dir && ends_in_dot(path) => Err(Failure::new(shown, "no such file or directory")),
        Aim::Within => Err(Failure::new(shown, "not a directory")),
        Aim::Itself | Aim::Either => Ok(Aim::Itself),
    }
}

/// Returns whether a path ends in "."; `Path::components` drops this final dot, which has a meaning
/// for `cp`.
pub fn ends_in_dot(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.ends_with(b"/.") || bytes == b"."
}

/// Splits a path into its directory and its last name.
fn split(path: &Path, shown: impl std::fmt::Display) -> Result<(PathBuf, Vec<u8>), Failure> {
    match path.components().next_back() {
        Some(Component::Normal(name)) => {
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
            Ok((dir.unwrap_or(Path::new(".")).into(), name.as_bytes().to_vec()))
        }
        _ => Err(Failure::new(shown, "does not end in a name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_needs_a_name() {
        assert!(split(Path::new("/"), "x").is_err());
        assert!(split(Path::new("a/.."), "x").is_err());
        let (dir, name) = split(Path::new("b"), "x").unwrap();
        assert_eq!((dir.as_path(), name.as_slice()), (Path::new("."), &b"b"[..]));
    }
}
