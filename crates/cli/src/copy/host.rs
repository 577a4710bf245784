//! A tree of the host.
//!
//! A copy from an image must stay inside the target directory. Therefore no file is opened or
//! created through a symbolic link that could come from the image. A path is entered only after a
//! check that it is a directory. It stays a directory, because the copy removes no directory that
//! it has entered.

use super::{Attribute, Identity, Listing, Meta, Opening, Settings, Tree, TreeFile};
use crate::cli::{Failure, HOLDS_IMAGE};
use crate::copy::links::Trail;
use lanefs::{FileType, NewKind, NewNode, Rdev, Time};
use lanefs_build::ShortPath;
use lanefs_device::data_after;
use lanefs_lanes::{Mutex, Rank};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The longest chain of symbolic links that is followed, as in the kernel.
const MOST_LINKS: usize = 40;
/// The length in bytes from which paths are resolved from open directories.
const SHORT: usize = 2000;
/// The number of directories that stay open for this.
const MOST_HELD: usize = 16;

/// The host's files, with the privilege of this process to change owners.
pub struct HostTree {
    privilege: Privilege,
    /// The files of the open images, which a copy must neither read nor replace.
    images: Vec<Identity>,
    /// Open directories on long paths, those used last at the end.
    held: Mutex<Vec<(Trail, Arc<OwnedFd>)>>,
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
            held: Mutex::new(Rank::Bucket, Vec::new()),
        }
    }

    /// Calls `act` with a path of `node` that system calls accept. It is short, even if `node` lies
    /// deep in the tree, since it takes long to resolve a long path for each file.
    fn short<T>(&self, node: &Trail, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        let Some((dir, name)) = node.split().filter(|_| node.len > SHORT) else {
            return ShortPath::new(&node.path()).and_then(|path| act(&path));
        };
        let dir = self.open_dir(dir)?;
        let dir = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
        act(&dir.join(OsStr::from_bytes(name)))
    }

    /// Works like [`HostTree::short`], with the failures of the command.
    fn at<T>(&self, node: &Trail, act: impl FnOnce(&Path) -> io::Result<T>) -> Result<T, Failure> {
        self.short(node, act).map_err(|error| Failure::host(self.show(node), &error))
    }

    /// Opens a directory, from the nearest directory above it that is still open.
    fn open_dir(&self, mut at: Trail) -> io::Result<Arc<OwnedFd>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut way = Vec::new();
        let mut dir = loop {
            if let Some(held) = self.held(&at) {
                break held;
            }
            let Some((above, _)) = at.split() else {
                let top = rustix::fs::open(&*ShortPath::new(&at.path())?, flags, Mode::empty())?;
                break self.hold(at, top);
            };
            way.push(std::mem::replace(&mut at, above));
        };
        let mut path = Vec::new();
        while let Some(below) = way.pop() {
            let name = below.split().map_or(&b"."[..], |(_, name)| name);
            path.extend_from_slice(name);
            path.push(b'/');
            if way.is_empty() || path.len() > SHORT {
                let opened = rustix::fs::openat(&dir, path.as_slice(), flags, Mode::empty())?;
                dir = self.hold(below, opened);
                path.clear();
            }
        }
        Ok(dir)
    }

    fn held(&self, dir: &Trail) -> Option<Arc<OwnedFd>> {
        let mut held = self.held.lock();
        let found = held.iter().position(|(trail, _)| trail.is(dir))?;
        let found = held.remove(found);
        held.push(found.clone());
        Some(found.1)
    }

    fn hold(&self, dir: Trail, opened: OwnedFd) -> Arc<OwnedFd> {
        let (opened, mut held) = (Arc::new(opened), self.held.lock());
        held.push((dir, opened.clone()));
        let oldest = (held.len() > MOST_HELD).then(|| held.remove(0));
        drop((held, oldest)); // the lock before the directory is closed
        opened
    }

    fn set_at(&self, short: &Path, node: &Trail, settings: &Settings) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::host(self.show(node), &error);
        let mut permissions = settings.permissions;
        if let Some((uid, gid)) = settings.owner {
            match std::os::unix::fs::lchown(short, Some(uid), Some(gid)) {
                Ok(()) => {}
                // Only root can change the owner. If the owner is not the original's owner, the
                // copy must not get set-ID bits.
                Err(error) if self.privilege == Privilege::User && is_denied(&error) => {
                    permissions = permissions.map(|mode| mode & 0o1777);
                }
                Err(error) => return Err(failed(error)),
            }
        }
        let may_fail = |error: &io::Error| {
            is_unsupported(error) || self.privilege == Privilege::User && is_denied(error)
        };
        let named = |name: &[u8], error: &io::Error| {
            let name = String::from_utf8_lossy(name);
            Failure::host(format_args!("{}: attribute {name}", self.show(node)), error)
        };
        for name in settings.lists_to_remove() {
            match xattr::remove(short, OsStr::from_bytes(name)) {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NODATA) => {}
                Err(error) if !may_fail(&error) => return Err(named(name, &error)),
                _ => {}
            }
        }
        if let Some(permissions) = permissions {
            std::fs::set_permissions(short, Permissions::from_mode(permissions.into()))
                .map_err(failed)?;
        }
        for (name, value) in &settings.attributes {
            match xattr::set(short, OsStr::from_bytes(name), value) {
                Err(error) if !may_fail(&error) => return Err(named(name, &error)),
                _ => {}
            }
        }
        if let Some((atime, mtime)) = settings.times {
            let time = |time: Time| Timespec { tv_sec: time.secs, tv_nsec: time.nanos.into() };
            let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
            let set = rustix::fs::utimensat(CWD, short, &times, AtFlags::SYMLINK_NOFOLLOW);
            set.map_err(|error| failed(error.into()))?;
        }
        Ok(())
    }

    /// Returns the attributes of a file that a copy reads or replaces.
    fn meta_of_found(&self, node: &Trail, metadata: Metadata) -> Result<Meta, Failure> {
        let meta = meta_of(&metadata)
            .ok_or_else(|| Failure::new(self.show(node), "unknown type of file"))?;
        if self.images.contains(&meta.identity) {
            return Err(Failure::new(self.show(node), HOLDS_IMAGE));
        }
        Ok(meta)
    }
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
    path: Trail,
    size: u64,
}

impl HostFile {
    fn failure(&self, error: impl Into<io::Error>) -> Failure {
        Failure::host(self.path.path().display(), &error.into())
    }
}

impl TreeFile for HostFile {
    fn data_after(&mut self, from: u64) -> Result<Option<(u64, u64)>, Failure> {
        // Files of proc(5) have data, but their size is 0.
        if self.size == 0 {
            return Ok((from == 0).then_some((0, u64::MAX)));
        }
        data_after(&self.file, from, self.size).map_err(|error| self.failure(error))
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Failure> {
        self.file.read_at(buf, offset).map_err(|error| self.failure(error))
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), Failure> {
        self.file.write_all_at(data, offset).map_err(|error| self.failure(error))
    }

    fn set_len(&mut self, size: u64) -> Result<(), Failure> {
        self.file.set_len(size).map_err(|error| self.failure(error))
    }
}

/// A directory of the host that is being read.
pub struct HostListing {
    entries: std::fs::ReadDir,
    path: Trail,
}

impl Listing for HostListing {
    fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let entry = self.entries.next().transpose();
        let entry = entry.map_err(|error| Failure::on_host(&self.path.path())(error))?;
        Ok(entry.map(|entry| entry.file_name().into_vec()))
    }
}

impl Tree for HostTree {
    /// A bind mount can give a directory a second name, so a second name is no sign of damage.
    const DIRECTORIES_HAVE_ONE_NAME: bool = false;
    type Node = Trail;
    type Listing<'a> = HostListing;
    type File<'a> = HostFile;

    fn meta(&self, node: &Trail) -> Result<Meta, Failure> {
        self.meta_of_found(node, self.at(node, Path::symlink_metadata)?)
    }

    fn list(&self, dir: &Trail) -> Result<HostListing, Failure> {
        let entries = self.at(dir, Path::read_dir)?;
        Ok(HostListing { entries, path: dir.clone() })
    }

    fn child(&self, dir: &Trail, name: &[u8]) -> Result<Trail, Failure> {
        Ok(dir.join(name))
    }

    fn follow(&self, node: &Trail) -> Result<Trail, Failure> {
        let link = node.path();
        let mut path = link.clone();
        for _ in 0..MOST_LINKS {
            let followed = ShortPath::new(&path).and_then(|short| {
                let is_link = short.symlink_metadata()?.is_symlink();
                is_link.then(|| short.read_link()).transpose()
            });
            match followed.map_err(Failure::on_host(&link))? {
                Some(text) => path = path.parent().unwrap_or(&path).join(text),
                None => return Ok(Trail::new(&path)),
            }
        }
        Err(Failure::on_host(&link)(Errno::LOOP))
    }

    fn read_link(&self, node: &Trail) -> Result<Vec<u8>, Failure> {
        Ok(self.at(node, Path::read_link)?.into_os_string().into_vec())
    }

    fn open(&self, node: &Trail) -> Result<HostFile, Failure> {
        let (file, size) = self.at(node, |path| {
            let file = File::open(path)?;
            let size = file.metadata()?.size();
            Ok((file, size))
        })?;
        Ok(HostFile { file, path: node.clone(), size })
    }

    fn attributes(&self, node: &Trail) -> Result<Vec<Attribute>, Failure> {
        self.at(node, |path| {
            let names = match xattr::list(path) {
                Err(error) if is_unsupported(&error) => return Ok(Vec::new()),
                names => names?,
            };
            let mut attributes = Vec::new();
            for name in names {
                match xattr::get(path, &name) {
                    Ok(Some(value)) => attributes.push((name.into_vec(), value)),
                    Ok(None) => {}
                    // Like other tools, skips attributes that this user has no right to read.
                    Err(error) if is_unsupported(&error) || is_denied(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            attributes.sort_unstable();
            Ok(attributes)
        })
    }

    fn show(&self, node: &Trail) -> String {
        node.path().display().to_string()
    }

    fn look(&self, dir: &Trail, name: &[u8]) -> Result<Option<(Trail, Meta)>, Failure> {
        let node = dir.join(name);
        match self.short(&node, Path::symlink_metadata) {
            Ok(metadata) => self.meta_of_found(&node, metadata).map(|meta| Some((node, meta))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::host(self.show(&node), &error)),
        }
    }

    fn make(&self, dir: &Trail, name: &[u8], new: NewNode<'_>) -> Result<Trail, Failure> {
        let (node, mode) = (dir.join(name), Mode::from_raw_mode(new.permissions.into()));
        let file_type = new.kind.file_type().mode_bits().into();
        let file_type = rustix::fs::FileType::from_raw_mode(file_type);
        self.at(&node, |path| {
            Ok(match new.kind {
                NewKind::Directory => rustix::fs::mkdir(path, mode),
                NewKind::Symlink(target) => rustix::fs::symlink(target, path),
                NewKind::CharDevice(Rdev { major, minor })
                | NewKind::BlockDevice(Rdev { major, minor }) => {
                    let device = rustix::fs::makedev(major, minor);
                    rustix::fs::mknodat(CWD, path, file_type, mode, device)
                }
                _ => rustix::fs::mknodat(CWD, path, file_type, mode, 0),
            }?)
        })?;
        Ok(node)
    }

    fn make_file(
        &self,
        dir: &Trail,
        name: &[u8],
        new: NewNode<'_>,
        opening: Opening,
    ) -> Result<(Trail, HostFile), Failure> {
        let node = dir.join(name);
        let mut options = File::options();
        options.write(true).mode(new.permissions.into());
        match opening {
            Opening::New => options.create_new(true),
            Opening::Emptied => options.create(true).truncate(true),
        };
        options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
        let file = self.at(&node, |path| options.open(path))?;
        Ok((node.clone(), HostFile { file, path: node, size: 0 }))
    }

    fn link(&self, node: &Trail, dir: &Trail, name: &[u8]) -> Result<(), Failure> {
        self.at(&dir.join(name), |path| {
            self.short(node, |original| std::fs::hard_link(original, path))
        })
    }

    fn rename(&self, dir: &Trail, from: &[u8], to: &[u8]) -> Result<Trail, Failure> {
        let (old, new) = (dir.join(from), dir.join(to));
        self.at(&new, |path| self.short(&old, |old| std::fs::rename(old, path)))?;
        Ok(new)
    }

    /// Returns `None`: like cp(1), a copy overwrites a file of the host in place, because other
    /// programs may have it open or mounted.
    fn replacement(&self, _node: &Trail) -> Result<Option<Settings>, Failure> {
        Ok(None)
    }

    fn free_space(&self, dir: &Trail) -> Result<u64, Failure> {
        let found = self.at(dir, |path| Ok(rustix::fs::statvfs(path)?))?;
        // Some file systems do not count their blocks.
        match found.f_blocks {
            0 => Ok(u64::MAX),
            _ => Ok(found.f_bavail.saturating_mul(found.f_frsize)),
        }
    }

    fn remove(&self, dir: &Trail, name: &[u8]) -> Result<(), Failure> {
        self.at(&dir.join(name), |path| std::fs::remove_file(path))
    }

    fn remove_dir(&self, dir: &Trail, name: &[u8]) -> Result<(), Failure> {
        self.at(&dir.join(name), |path| std::fs::remove_dir(path))
    }

    fn set(&self, node: &Trail, settings: &Settings) -> Result<(), Failure> {
        self.at(node, |path| Ok(self.set_at(path, node, settings)))?
    }

    fn show_entry(&self, dir: &Trail, name: &[u8]) -> String {
        self.show(&dir.join(name))
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error())
}

fn is_denied(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}
