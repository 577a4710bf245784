//! Runs the operations of the cases through the library, with the caller's credentials.

use super::*;
use lanefs::{
    Credentials, Fallocate, FileSystem, Follow, NewKind, NewNode, Rename, SetAttr, SetTime, Time,
};
use lanefs_ext4::{Error, InodeRef, SetXattr};
use lanefs_vfs::{OpenFile, OpenFlags, Vfs};
use std::ops::ControlFlow;

type Result<T> = std::result::Result<T, Error>;

pub struct Library {
    pub fs: FileSystem,
}

fn who(caller: &Caller) -> Credentials {
    Credentials::new(caller.uid, caller.gid, caller.groups)
}

fn set_time(stamp: Stamp) -> Option<SetTime> {
    match stamp {
        Stamp::Omit => None,
        Stamp::Now => Some(SetTime::Now),
        Stamp::At(secs, nanos) => Some(SetTime::At(Time { secs, nanos })),
    }
}

fn chmod(mode: u32) -> SetAttr {
    SetAttr { permissions: Some(mode as u16), ..SetAttr::default() }
}

fn chown(uid: Option<u32>, gid: Option<u32>) -> SetAttr {
    SetAttr { uid, gid, ..SetAttr::default() }
}

fn times(atime: Stamp, mtime: Stamp) -> SetAttr {
    SetAttr { atime: set_time(atime), mtime: set_time(mtime), ..SetAttr::default() }
}

const NEW: NewNode<'static> = NewNode { kind: NewKind::Regular, permissions: 0o6777, umask: 0o022 };

impl Library {
    fn vfs(&self) -> &Vfs {
        self.fs.vfs()
    }

    fn find(&self, who: &Credentials, path: &str) -> Result<InodeRef> {
        self.vfs().walk(who, self.vfs().root(), path.as_bytes(), Follow::Nothing)
    }

    fn open(&self, who: &Credentials, path: &str, flags: OpenFlags) -> Result<OpenFile> {
        self.vfs().open_path(who, self.vfs().root(), path.as_bytes(), flags, &NEW)
    }

    pub fn open_old(&self, case: &Case) -> Result<OpenFile> {
        self.open(&who(case.caller()), &case.path(), OpenFlags::READ | OpenFlags::WRITE)
    }

    pub fn flag(&self, case: &Case) {
        if case.object.flag != Flag::None {
            self.change_flags(&Credentials::superuser(), &case.path(), case.object.flag.bits(), 0)
                .unwrap();
        }
    }

    fn change_flags(&self, who: &Credentials, path: &str, set: u32, clear: u32) -> Result<()> {
        let file = self.open(who, path, OpenFlags::READ)?;
        let flags = Some(file.inode().attr().flags & !clear | set);
        let set = SetAttr { flags, ..SetAttr::default() };
        self.vfs().set_attr(who, file.inode(), &set).map(drop)
    }

    pub fn act(&self, case: &Case, old: Option<&Result<OpenFile>>) -> Outcome {
        let who = who(case.caller());
        let done = match (case.op, old) {
            (Op::Old(op), Some(Ok(file))) => self.by_old(&who, file, op),
            (Op::Old(_), Some(Err(error))) => return Err(error.errno()),
            _ => self.by_path(&who, case),
        };
        done.map_err(|error| error.errno())
    }

    fn by_old(&self, who: &Credentials, file: &OpenFile, op: OldOp) -> Result<String> {
        let vfs = self.vfs();
        let set = |set: SetAttr| vfs.set_attr(who, file.inode(), &set).map(drop);
        match op {
            OldOp::Truncate(len) => vfs.set_len(file, len).map(drop),
            OldOp::Write => vfs.write(file, 1, b"a").map(drop),
            OldOp::Allocate => vfs.fallocate(file, Fallocate::Allocate, 0, 9000),
            OldOp::Punch => vfs.fallocate(file, Fallocate::PunchHole, 0, 4096),
            OldOp::Chmod => set(chmod(0o6755)),
            OldOp::Chown => set(chown(None, Some(OTHER_GROUP))),
            OldOp::Times(atime, mtime) => set(times(atime, mtime)),
            OldOp::SetXattr => vfs.set_xattr(who, file.inode(), b"user.old", b"set", SetXattr::Any),
        }?;
        Ok(String::new())
    }

    fn by_path(&self, who: &Credentials, case: &Case) -> Result<String> {
        let vfs = self.vfs();
        let (path, dir) = (case.path(), case.dir());
        let there = || self.find(who, &path);
        let set = |set: SetAttr| vfs.set_attr(who, &there()?, &set).map(drop);
        let parent = || self.find(who, &dir);
        let opened = |flags| self.open(who, &path, flags);
        let appended = || opened(OpenFlags::WRITE | OpenFlags::APPEND);
        let rename = |from: &[u8], to: &InodeRef, name: &[u8], how| {
            vfs.rename(who, &parent()?, from, to, name, how)
        };
        match case.op {
            Op::Chmod(mode) => {
                let followed = vfs.walk(who, vfs.root(), path.as_bytes(), Follow::Links)?;
                vfs.set_attr(who, &followed, &chmod(mode)).map(drop)
            }
            Op::Chown(uid, gid) => set(chown(uid, gid)),
            Op::Times(atime, mtime) => set(times(atime, mtime)),
            Op::Link if case.object.kind == Kind::Directory => {
                let dir = there()?;
                vfs.link(who, &self.find(who, &format!("{path}/in"))?, &dir, b"linked")
            }
            Op::Link => vfs.link(who, &there()?, &parent()?, b"linked"),
            Op::Rename => rename(b"o", &parent()?, b"moved", Rename::Replace),
            Op::RenameAway => {
                let name = format!("n{}", case.number);
                rename(b"o", &self.find(who, "away")?, name.as_bytes(), Rename::Replace)
            }
            Op::RenameOver => rename(b"other", &parent()?, b"o", Rename::Replace),
            Op::Exchange => rename(b"o", &parent()?, b"other", Rename::Exchange),
            Op::Unlink => vfs.unlink(who, &parent()?, b"o"),
            Op::Rmdir => vfs.rmdir(who, &parent()?, b"o"),
            Op::Truncate(len) => vfs.set_len(&appended()?, len).map(drop),
            Op::Open(how) => opened(how_flags(how)).map(drop),
            Op::Append => vfs.write(&appended()?, 0, b"a").map(drop),
            Op::Overwrite => vfs.write(&opened(OpenFlags::WRITE)?, 1, b"a").map(drop),
            Op::Allocate => vfs.fallocate(&appended()?, Fallocate::Allocate, 0, 9000),
            Op::Punch => vfs.fallocate(&appended()?, Fallocate::PunchHole, 0, 4096),
            Op::Read => vfs.read(&opened(OpenFlags::READ)?, 0, &mut [0; 16]).map(drop),
            Op::ReadNoAtime => {
                let file = opened(OpenFlags::READ | OpenFlags::NO_ATIME)?;
                vfs.read(&file, 0, &mut [0; 16]).map(drop)
            }
            Op::ReadLink => {
                let target = vfs.read_link(&there()?)?;
                return Ok(String::from_utf8(target).unwrap());
            }
            Op::SetXattr(name) => self.set_xattr(who, &there()?, name, b"set"),
            Op::SameXattr(name) => self.set_xattr(who, &there()?, name, b"value"),
            Op::RemoveXattr(name) => vfs.remove_xattr(who, &there()?, name.as_bytes()),
            Op::GetXattr(name) => {
                return Ok(hex(&vfs.get_xattr(who, &there()?, name.as_bytes())?));
            }
            Op::ListXattr => {
                return Ok(names(vfs.list_xattr(who, &there()?)?).join(" "));
            }
            Op::SetAcl(which, list) => self.set_xattr(who, &there()?, which.name(), &list.bytes()),
            Op::RemoveAcl(which) => vfs.remove_xattr(who, &there()?, which.name().as_bytes()),
            Op::GetAcl(which) => {
                return Ok(hex(&vfs.get_xattr(who, &there()?, which.name().as_bytes())?));
            }
            Op::Chattr(set, clear) => self.change_flags(who, &path, set, clear),
            Op::Stat => {
                let root = vfs.root();
                let attr = vfs.stat(who, root, path.as_bytes(), Follow::Nothing)?;
                return Ok(format!("{:o} {} {}", attr.mode(), attr.uid, attr.gid));
            }
            Op::MakeIn(kind) => self.make_in(who, &path, kind),
            Op::UnlinkIn => vfs.unlink(who, &there()?, b"in"),
            Op::ListIn => {
                let dir = opened(OpenFlags::READ | OpenFlags::DIRECTORY)?;
                let mut count = 0;
                vfs.read_dir(&dir, 0, &mut |_| {
                    count += 1;
                    ControlFlow::Continue(())
                })?;
                return Ok((count - 2).to_string());
            }
            Op::Old(_) => unreachable!("done by descriptor"),
        }?;
        Ok(String::new())
    }

    fn set_xattr(
        &self,
        who: &Credentials,
        inode: &InodeRef,
        name: &str,
        value: &[u8],
    ) -> Result<()> {
        self.vfs().set_xattr(who, inode, name.as_bytes(), value, SetXattr::Any)
    }

    fn make_in(&self, who: &Credentials, dir: &str, kind: Kind) -> Result<()> {
        // As a system call does, the library walks the path first, and so checks the directory's
        // search permission.
        let dir = self.vfs().parent(who, self.vfs().root(), format!("{dir}/made").as_bytes())?.dir;
        let (kind, permissions) = match kind {
            Kind::File => (NewKind::Regular, 0o6777),
            Kind::Directory => (NewKind::Directory, 0o777),
            Kind::Symlink => (NewKind::Symlink(b"target"), 0o777),
            Kind::Fifo => unreachable!("not made"),
        };
        self.vfs().make(who, &dir, b"made", &NewNode { kind, permissions, ..NEW }).map(drop)
    }

    pub fn observe(&self, case: &Case) -> Vec<Seen> {
        let root = Credentials::superuser();
        let dir = self.find(&root, &case.dir()).unwrap();
        let mut seen = vec![self.look(&dir, "directory")];
        self.within(&dir, "", &mut seen);
        if case.op == Op::RenameAway
            && let Ok(away) = self.find(&root, &case.away())
        {
            seen.push(self.look(&away, "away"));
        }
        seen
    }

    fn within(&self, dir: &InodeRef, prefix: &str, seen: &mut Vec<Seen>) {
        let mut entries = Vec::new();
        let each = &mut |entry: &lanefs_ext4::DirEntry<'_>| {
            entries.push(String::from_utf8(entry.name.to_vec()).unwrap());
            ControlFlow::Continue(())
        };
        self.vfs().fs().read_dir(dir, 0, each).unwrap();
        entries.retain(|name| name != "." && name != "..");
        entries.sort();
        for entry in entries {
            let root = Credentials::superuser();
            let inode = self.vfs().lookup(&root, dir, entry.as_bytes()).unwrap();
            let name = format!("{prefix}{entry}");
            seen.push(self.look(&inode, &name));
            if inode.attr().file_type == lanefs::FileType::Directory {
                self.within(&inode, &format!("{name}/"), seen);
            }
        }
    }

    fn look(&self, inode: &InodeRef, name: &str) -> Seen {
        use lanefs::FileType::{Directory, Regular};
        let root = Credentials::superuser();
        let attr = inode.attr();
        let flags = matches!(attr.file_type, Regular | Directory).then_some(attr.flags);
        let names = names(self.vfs().list_xattr(&root, inode).unwrap());
        let xattrs = names.into_iter().map(|name| {
            let value = self.vfs().get_xattr(&root, inode, name.as_bytes()).unwrap();
            (name, value)
        });
        Seen {
            name: name.to_owned(),
            mode: attr.mode().into(),
            uid: attr.uid,
            gid: attr.gid,
            links: attr.links.into(),
            size: attr.size,
            flags,
            xattrs: xattrs.collect(),
            times: [attr.atime, attr.mtime, attr.ctime].map(|time| (time.secs, time.nanos)),
        }
    }
}

fn how_flags(how: How) -> OpenFlags {
    match how {
        How::Write => OpenFlags::WRITE,
        How::Append => OpenFlags::WRITE | OpenFlags::APPEND,
        How::Truncate => OpenFlags::WRITE | OpenFlags::TRUNCATE,
        How::NoAtime => OpenFlags::READ | OpenFlags::NO_ATIME,
    }
}

fn names(list: Vec<Vec<u8>>) -> Vec<String> {
    let mut names: Vec<_> = list.into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
    names.sort();
    names
}
