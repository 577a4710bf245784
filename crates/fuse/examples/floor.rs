//! Serves a mount without a file system: hash tables store names and sizes; times and data are not
//! stored. The session and the kernel flags are the same as in the ext4 server, so an operation on
//! this mount costs only the time of the transport. `scripts/floor` measures this server and the
//! ext4 server alternately.
//!
//! ```sh
//! cargo run --release -p lanefs-fuse --example floor -- DIRECTORY [OPTION...]   # until the unmount
//! ```

use lanefs_fuse::abi::{self, fattr, fopen, opcode};
use lanefs_fuse::{
    Answer, Caching, Channel, Errno, MountPoint, Options, Outbox, Request, Service, Session,
    Transport, Wishes,
};
use lanefs_lanes::{Mutex, Rank};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

const ROOT: u64 = abi::ROOT_ID;
const DIRECTORY: u32 = 0o040000;
const REGULAR: u32 = 0o100000;
/// Seconds for which the kernel may cache entries and attributes, as in the ext4 server.
const FOREVER: u64 = 365 * 24 * 3600;
const NO_DATA: Errno = Errno(libc::ENODATA);

#[derive(Debug, Clone, Default)]
struct Node {
    mode: u32,
    size: u64,
    names: HashMap<Vec<u8>, u64>,
}

struct Tree {
    nodes: HashMap<u64, Node>,
    next: u64,
}

struct Floor {
    tree: Mutex<Tree>,
    wishes: Wishes,
}

impl Tree {
    fn node(&mut self, id: u64) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&id).ok_or(Errno::NOENT)
    }

    fn attr(&mut self, id: u64) -> Result<abi::Attr, Errno> {
        let node = self.node(id)?;
        let (size, mode) = (node.size, node.mode);
        let now = 0;
        Ok(abi::Attr {
            ino: id,
            size,
            blocks: size.div_ceil(512),
            atime: now,
            mtime: now,
            ctime: now,
            atimensec: 0,
            mtimensec: 0,
            ctimensec: 0,
            mode,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn put_attr(&mut self, id: u64, outbox: &mut Outbox) -> Result<(), Errno> {
        let attr = self.attr(id)?;
        outbox.put(&abi::AttrOut { attr_valid: FOREVER, attr_valid_nsec: 0, dummy: 0, attr });
        Ok(())
    }

    /// Returns the entry of node `id`, or an error if the node does not exist. Without an id,
    /// returns an entry that names no node.
    fn entry(&mut self, id: Option<u64>) -> Result<abi::EntryOut, Errno> {
        Ok(abi::EntryOut {
            nodeid: id.unwrap_or(0),
            generation: 0,
            entry_valid: FOREVER,
            attr_valid: FOREVER,
            entry_valid_nsec: 0,
            attr_valid_nsec: 0,
            attr: self.attr(id.unwrap_or(ROOT))?,
        })
    }

    fn put_entry(&mut self, id: Option<u64>, outbox: &mut Outbox) -> Result<(), Errno> {
        outbox.put(&self.entry(id)?);
        Ok(())
    }

    fn make(&mut self, dir: u64, name: &[u8], mode: u32, outbox: &mut Outbox) -> Result<(), Errno> {
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, Node { mode, ..Node::default() });
        self.node(dir)?.names.insert(name.to_vec(), id);
        self.put_entry(Some(id), outbox)
    }

    fn remove(&mut self, dir: u64, name: &[u8]) -> Result<(), Errno> {
        let id = self.node(dir)?.names.remove(name).ok_or(Errno::NOENT)?;
        self.nodes.remove(&id);
        Ok(())
    }

    /// Serves READDIR, or READDIRPLUS if `entry` is given. In a READDIRPLUS reply, each name is
    /// preceded by `entry`, which names no node.
    fn list(
        &mut self,
        dir: u64,
        from: u64,
        entry: Option<abi::EntryOut>,
        outbox: &mut Outbox,
    ) -> Result<(), Errno> {
        let names = self.node(dir)?.names.clone();
        for (at, (name, id)) in names.iter().enumerate().skip(from as usize) {
            if outbox.len() + 512 > 4096 {
                break;
            }
            entry.iter().for_each(|entry| outbox.put(entry));
            let (off, namelen) = (at as u64 + 1, name.len() as u32);
            outbox.put(&abi::Dirent { ino: *id, off, namelen, kind: 0 });
            outbox.put_bytes(name);
            outbox.pad();
        }
        Ok(())
    }
}

impl Service for Floor {
    fn wishes(&self) -> Wishes {
        self.wishes
    }

    fn serve(
        &self,
        mut request: Request<'_>,
        outbox: &mut Outbox,
        _: &Channel,
    ) -> Result<Answer, Errno> {
        outbox.clear();
        let id = request.header.nodeid;
        let tree = &mut *self.tree.lock();
        let opened = abi::OpenOut {
            fh: 1,
            open_flags: fopen::KEEP_CACHE | fopen::PARALLEL_DIRECT_WRITES,
            backing_id: 0,
        };
        match request.header.opcode {
            opcode::LOOKUP => {
                let found = tree.node(id)?.names.get(request.name()?).copied();
                tree.put_entry(found, outbox)?;
            }
            opcode::GETATTR => tree.put_attr(id, outbox)?,
            opcode::SETATTR => {
                let set: abi::SetattrIn = request.take()?;
                if set.valid & fattr::SIZE != 0 {
                    tree.node(id)?.size = set.size;
                }
                // The kernel may send the last timestamps of a node after the node was removed.
                // The reply then has the attributes of the root.
                if tree.put_attr(id, outbox).is_err() {
                    tree.put_attr(ROOT, outbox)?;
                }
            }
            opcode::MKDIR => {
                let input: abi::MkdirIn = request.take()?;
                tree.make(id, request.name()?, DIRECTORY | input.mode & 0o7777, outbox)?;
            }
            opcode::CREATE => {
                let input: abi::CreateIn = request.take()?;
                tree.make(id, request.name()?, REGULAR | input.mode & 0o7777, outbox)?;
                outbox.put(&opened);
            }
            opcode::UNLINK | opcode::RMDIR => tree.remove(id, request.name()?)?,
            opcode::RENAME => {
                let input: abi::RenameIn = request.take()?;
                let (old, new) = (request.name()?, request.name()?);
                let moved = tree.node(id)?.names.remove(old).ok_or(Errno::NOENT)?;
                tree.node(input.newdir)?.names.insert(new.to_vec(), moved);
            }
            opcode::OPEN => outbox.put(&opened),
            opcode::READ => {
                let input: abi::ReadIn = request.take()?;
                let left = tree.node(id)?.size.saturating_sub(input.offset);
                outbox.set_len(left.min(input.size.into()) as usize);
            }
            opcode::WRITE => {
                let input: abi::WriteIn = request.take()?;
                let node = tree.node(id)?;
                node.size = node.size.max(input.offset.saturating_add(input.size.into()));
                outbox.put(&abi::WriteOut { size: input.size, padding: 0 });
            }
            opcode::READDIR | opcode::READDIRPLUS => {
                let input: abi::ReadIn = request.take()?;
                let plus = request.header.opcode == opcode::READDIRPLUS;
                let entry = if plus { Some(tree.entry(None)?) } else { None };
                tree.list(id, input.offset, entry, outbox)?;
            }
            opcode::FALLOCATE => {
                let input: abi::FallocateIn = request.take()?;
                let node = tree.node(id)?;
                node.size = node.size.max(input.offset.saturating_add(input.length));
            }
            opcode::STATFS => outbox.put(&abi::StatfsOut {
                blocks: 1 << 30,
                bfree: 1 << 29,
                bavail: 1 << 29,
                files: 1 << 30,
                ffree: 1 << 29,
                bsize: 4096,
                namelen: 255,
                frsize: 4096,
                padding: 0,
                spare: [0; 6],
            }),
            opcode::GETXATTR => return Err(NO_DATA),
            opcode::FORGET | opcode::BATCH_FORGET => return Ok(Answer::Silence),
            opcode::RELEASE | opcode::FSYNC | opcode::FSYNCDIR | opcode::DESTROY => {}
            _ => return Err(Errno::NOSYS),
        }
        Ok(Answer::Reply)
    }
}

fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1) else {
        eprintln!("floor DIRECTORY [no_writeback] [transport=read|transport=ring]");
        return ExitCode::FAILURE;
    };
    let options: Vec<_> = std::env::args().skip(2).collect();
    let has = |option: &str| options.iter().any(|given| given == option);
    let caching = match has("no_writeback") {
        true => Caching::Writethrough,
        false => Caching::Writeback,
    };
    let transport = match (has("transport=read"), has("transport=ring")) {
        (true, _) => Transport::Read,
        (_, true) => Transport::Ring,
        _ => Transport::Auto,
    };
    let root = Node { mode: DIRECTORY | 0o777, ..Node::default() };
    let tree = Tree { nodes: HashMap::from([(ROOT, root)]), next: ROOT + 1 };
    let wishes = Wishes { caching, transport, ..Wishes::default() };
    let floor = Floor { tree: Mutex::new(Rank::Bucket, tree), wishes };
    let served = MountPoint::attach(Path::new(&dir), OsStr::new("floor"), &Options::default())
        .map_err(|error| error.to_string())
        .and_then(|(device, _)| Session::start(device, floor).map_err(|e| e.to_string()))
        .and_then(|session| session.run().1.map_err(|error| error.to_string()));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("floor: {error}");
            ExitCode::FAILURE
        }
    }
}
