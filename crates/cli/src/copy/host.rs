//! A tree of the host.
//!
//! A copy from an image must stay inside the target directory. Therefore no file is opened or
//! created through a symbolic link that could come from the image. A path is entered only after a
//! check that it is a directory. It stays a directory, because the copy removes no directories.

use super::{Attribute, Content, Identity, Listing, Meta, Settings, Sink, Source, Target};
use crate::cli::{Failure, HOLDS_IMAGE};
use lanefs::{FileType, Rdev, Time};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom, Timespec, Timestamps};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The host's files, with the privilege of this process to change owners.
pub struct HostTree {
    privilege: Privilege,
    /// The files of the open images, which a copy must neither read nor replace.
    images: Vec<Identity>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Privilege {
    Superuser,
    User,
}

impl HostTree {
    /// Creates the tree with the privileges of this process. `images` are the paths of the files
    /// that hold the open images.
    pub fn beside(images: &[PathBuf]) -> HostTree {
        let is_root = rustix::process::geteuid().is_root();
        let identity = |path: &PathBuf| {
            let found = path.metadata().ok()?;
            Some(Identity { device: found.dev(), inode: found.ino() })
        };
        HostTree {
            privilege: if is_root { Privilege::Superuser } else { Privilege::User },
            images: images.iter().filter_map(identity).collect(),
        }
    }

    /// Returns the attributes of a file that a copy reads or replaces.
    fn lstat(&self, path: &Path) -> Result<Meta, Failure> {
        let metadata = path.symlink_metadata().map_err(failed(path))?;
        let meta = meta_of(&metadata)
            .ok_or_else(|| Failure::new(path.display(), "unknown type of file"))?;
        if self.images.contains(&meta.identity) {
            return Err(Failure::new(path.display(), HOLDS_IMAGE));
        }
        Ok(meta)
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| Failure::host(path.display(), &error)
}

/// Returns the attributes of a host file, in the form that a copy uses.
pub fn meta_of(metadata: &Metadata) -> Option<Meta> {
    let mode = metadata.mode();
    Some(Meta {
        identity: Identity { device: metadata.dev(), inode: metadata.ino() },
        file_type: FileType::from_mode((mode & 0xffff) as u16)?,
        permissions: (mode & 0o7777) as u16,
        links: metadata.nlink(),
        uid: metadata.uid(),
        gid: metadata.gid(),
        size: metadata.size(),
        sectors: metadata.blocks(),
        rdev: Rdev {
            major: rustix::fs::major(metadata.rdev()),
            minor: rustix::fs::minor(metadata.rdev()),
        },
        atime: Time { secs: metadata.atime(), nanos: nanos(metadata.atime_nsec()) },
        mtime: Time { secs: metadata.mtime(), nanos: nanos(metadata.mtime_nsec()) },
        ctime: Time { secs: metadata.ctime(), nanos: nanos(metadata.ctime_nsec()) },
    })
}

fn nanos(nanos: i64) -> u32 {
    u32::try_from(nanos).unwrap_or(0)
}

/// An open file of the host.
pub struct HostFile {
    file: File,
    path: PathBuf,
    size: u64,
}

impl HostFile {
    fn seek(&self, to: SeekFrom) -> Result<Option<u64>, Failure> {
        match rustix::fs::seek(&self.file, to) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(Failure::host(self.path.display(), &error.into())),
        }
    }
}

impl Content for HostFile {
    fn data_after(&mut self, from: u64) -> Result<Option<(u64, u64)>, Failure> {
        // Files of proc(5) have data, but their size is 0.
        if self.size == 0 {
            return Ok((from == 0).then_some((0, u64::MAX)));
        }
        // If the file system cannot report holes, the whole file is data.
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(from)) {
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                return Ok((from < self.size).then_some((from, self.size)));
            }
            Err(Errno::NXIO) => return Ok(None),
            Err(error) => return Err(Failure::host(self.path.display(), &error.into())),
            Ok(start) => start,
        };
        let end = self.seek(SeekFrom::Hole(start))?.unwrap_or(start);
        Ok(Some((start, end)))
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Failure> {
        self.file.read_at(buf, offset).map_err(failed(&self.path))
    }
}

impl Sink for HostFile {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), Failure> {
        self.file.write_all_at(data, offset).map_err(failed(&self.path))
    }

    fn set_len(&mut self, size: u64) -> Result<(), Failure> {
        self.file.set_len(size).map_err(failed(&self.path))
    }
}

/// A directory of the host that is being read.
pub struct HostListing {
    entries: std::fs::ReadDir,
    path: PathBuf,
}

impl Listing for HostListing {
    fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let entry = self.entries.next().transpose().map_err(failed(&self.path))?;
        Ok(entry.map(|entry| entry.file_name().into_vec()))
    }
}

impl Source for HostTree {
    /// A bind mount can give a directory a second name, so a second name is no sign of damage.
    const DIRECTORIES_HAVE_ONE_NAME: bool = false;
    type Node = PathBuf;
    type Listing<'a> = HostListing;
    type Content<'a> = HostFile;

    fn meta(&self, node: &PathBuf) -> Result<Meta, Failure> {
        self.lstat(node)
    }

    fn list(&self, dir: &PathBuf) -> Result<HostListing, Failure> {
        let entries = dir.read_dir().map_err(failed(dir))?;
        Ok(HostListing { entries, path: dir.clone() })
    }

    fn child(&self, dir: &PathBuf, name: &[u8]) -> Result<PathBuf, Failure> {
        Ok(dir.join(OsStr::from_bytes(name)))
    }

    fn follow(&self, node: &PathBuf) -> Result<PathBuf, Failure> {
        node.canonicalize().map_err(failed(node))
    }

    fn read_link(&self, node: &PathBuf) -> Result<Vec<u8>, Failure> {
        Ok(node.read_link().map_err(failed(node))?.into_os_string().into_vec())
    }

    fn open(&self, node: &PathBuf) -> Result<HostFile, Failure> {
        let file = File::open(node).map_err(failed(node))?;
        let size = file.metadata().map_err(failed(node))?.size();
        Ok(HostFile { file, path: node.clone(), size })
    }

    fn attributes(&self, node: &PathBuf) -> Result<Vec<Attribute>, Failure> {
        let names = match xattr::list(node) {
            Err(error) if is_unsupported(&error) => return Ok(Vec::new()),
            names => names.map_err(failed(node))?,
        };
        let mut attributes = Vec::new();
        for name in names {
            match xattr::get(node, &name) {
                Ok(Some(value)) => attributes.push((name.into_vec(), value)),
                Ok(None) => {}
                // Like other tools, skips attributes that this user has no right to read.
                Err(error) if is_unsupported(&error) || is_denied(&error) => {}
                Err(error) => return Err(Failure::host(node.display(), &error)),
            }
        }
        attributes.sort_unstable();
        Ok(attributes)
    }

    fn show(&self, node: &PathBuf) -> String {
        node.display().to_string()
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error())
}

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

impl Target for HostTree {
    type Node = PathBuf;
    type Sink<'a> = HostFile;

    fn look(&self, dir: &PathBuf, name: &[u8]) -> Result<Option<(PathBuf, Meta)>, Failure> {
        let path = dir.join(OsStr::from_bytes(name));
        match path.symlink_metadata() {
            Ok(_) => self.lstat(&path).map(|meta| Some((path, meta))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::host(path.display(), &error)),
        }
    }

    fn make_dir(&self, dir: &PathBuf, name: &[u8], permissions: u16) -> Result<PathBuf, Failure> {
        let path = dir.join(OsStr::from_bytes(name));
        let mode = Mode::from_raw_mode(permissions.into());
        rustix::fs::mkdir(&path, mode).map_err(|e| Failure::host(path.display(), &e.into()))?;
        Ok(path)
    }

    fn make_file(
        &self,
        dir: &PathBuf,
        name: &[u8],
        permissions: u16,
    ) -> Result<(PathBuf, HostFile), Failure> {
        let path = dir.join(OsStr::from_bytes(name));
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(permissions.into())
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(&path)
            .map_err(failed(&path))?;
        Ok((path.clone(), HostFile { file, path, size: 0 }))
    }

    fn make_symlink(
        &self,
        dir: &PathBuf,
        name: &[u8],
        leads_to: &[u8],
    ) -> Result<PathBuf, Failure> {
        let path = dir.join(OsStr::from_bytes(name));
        let made = std::os::unix::fs::symlink(OsStr::from_bytes(leads_to), &path);
        made.map_err(failed(&path))?;
        Ok(path)
    }

    fn make_special(
        &self,
        dir: &PathBuf,
        name: &[u8],
        meta: &Meta,
        permissions: u16,
    ) -> Result<PathBuf, Failure> {
        let path = dir.join(OsStr::from_bytes(name));
        let file_type = rustix::fs::FileType::from_raw_mode(meta.file_type.mode_bits().into());
        let device = rustix::fs::makedev(meta.rdev.major, meta.rdev.minor);
        let mode = Mode::from_raw_mode(permissions.into());
        rustix::fs::mknodat(CWD, &path, file_type, mode, device)
            .map_err(|e| Failure::host(path.display(), &e.into()))?;
        Ok(path)
    }

    fn link(&self, node: &PathBuf, dir: &PathBuf, name: &[u8]) -> Result<(), Failure> {
        let path = dir.join(OsStr::from_bytes(name));
        std::fs::hard_link(node, &path).map_err(failed(&path))
    }

    fn remove(&self, dir: &PathBuf, name: &[u8]) -> Result<(), Failure> {
        let path = dir.join(OsStr::from_bytes(name));
        std::fs::remove_file(&path).map_err(failed(&path))
    }

    fn remove_dir(&self, dir: &PathBuf, name: &[u8]) -> Result<(), Failure> {
        let path = dir.join(OsStr::from_bytes(name));
        std::fs::remove_dir(&path).map_err(failed(&path))
    }

    fn set(&self, node: &PathBuf, settings: &Settings) -> Result<(), Failure> {
        let mut permissions = settings.permissions;
        if let Some((uid, gid)) = settings.owner {
            match std::os::unix::fs::lchown(node, Some(uid), Some(gid)) {
                Ok(()) => {}
                // Only root can change the owner. If the owner is not the original's owner, the
                // copy must not get set-ID bits.
                Err(error) if self.privilege == Privilege::User && is_denied(&error) => {
                    permissions = permissions.map(|mode| mode & 0o1777);
                }
                Err(error) => return Err(Failure::host(node.display(), &error)),
            }
        }
        if let Some(permissions) = permissions {
            std::fs::set_permissions(node, Permissions::from_mode(permissions.into()))
                .map_err(failed(node))?;
        }
        for (name, value) in &settings.attributes {
            match xattr::set(node, OsStr::from_bytes(name), value) {
                Ok(()) => {}
                Err(error)
                    if is_unsupported(&error)
                        || self.privilege == Privilege::User && is_denied(&error) => {}
                Err(error) => {
                    let name = String::from_utf8_lossy(name);
                    let place = format_args!("{}: attribute {name}", node.display());
                    return Err(Failure::host(place, &error));
                }
            }
        }
        if let Some((atime, mtime)) = settings.times {
            let time = |time: Time| Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() };
            let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
            rustix::fs::utimensat(CWD, node, &times, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|e| Failure::host(node.display(), &e.into()))?;
        }
        Ok(())
    }

    fn show(&self, dir: &PathBuf, name: &[u8]) -> String {
        dir.join(OsStr::from_bytes(name)).display().to_string()
    }
}
