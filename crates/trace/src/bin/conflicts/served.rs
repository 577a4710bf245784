//! Traces the FUSE server, without a kernel, from a decoded request to the encoded reply. Each
//! thread serves one client.

use crate::AnyError;
use crate::matrix::{self, Pair, Trace};
use crate::operations::selects;
use crate::reason::Reasons;
use crate::setting::Setting;
use lanefs::FormatOptions;
use lanefs::device::RamDevice;
use lanefs_ext4::{Mount, MountOptions};
use lanefs_fuse::abi::{ROOT_ID, fattr, opcode};
use lanefs_fuse::{Answer, Channel, Errno, Ids, Outbox, Request, Server, Service, Wishes};
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::unscheduled::{Mutex, PoisonError};
use lanefs_mkfs::Contents;
use lanefs_trace::{Footprint, Granule, Recorder, Workers};
use std::time::Duration;

/// Bytes of each read and write.
const PAGE: u64 = 4096;
const PAGES: u64 = 64;
/// Untraced rounds before the traced ones.
const WARM: usize = 3;

/// One or two requests, with their untraced preparation.
struct Served {
    name: &'static str,
    /// Whether several clients may concurrently send the requests for the same file without
    /// affecting each other.
    commutes: bool,
    prepare: fn(&mut Client<'_>),
    act: fn(&mut Client<'_>),
}

const fn commuting(name: &'static str, act: fn(&mut Client<'_>)) -> Served {
    Served { name, commutes: true, prepare: |_| (), act }
}

const fn changing(
    name: &'static str,
    prepare: fn(&mut Client<'_>),
    act: fn(&mut Client<'_>),
) -> Served {
    Served { name, commutes: false, prepare, act }
}

const OPERATIONS: &[Served] = &[
    commuting("lookup", |c| c.look_up(FILE)),
    commuting("getattr", |c| {
        c.ask(opcode::GETATTR, c.file, &[&[0; 16]]);
    }),
    commuting("open and release", |c| c.open_and_release(libc::O_RDONLY)),
    commuting("open to write and release", |c| c.open_and_release(libc::O_RDWR)),
    commuting("read", |c| {
        let offset = c.offset();
        c.ask(opcode::READ, c.file, &[&[0; 8], &offset, &words([PAGE as u32, 0]), &[0; 16]]);
    }),
    commuting("write", |c| c.write(0)),
    commuting("write of cached pages", |c| c.write(1)),
    changing("readdir", |_| (), |c| c.read_dir(opcode::READDIR)),
    changing("readdirplus", |_| (), |c| c.read_dir(opcode::READDIRPLUS)),
    changing("create and release", |_| (), |c| c.create()),
    changing("unlink", |c| c.create(), |c| c.unlink()),
    changing("forget", |c| c.create(), |c| c.forget()),
    changing("mkdir", |_| (), |c| c.mkdir()),
    changing(
        "rmdir",
        |c| c.mkdir(),
        |c| {
            c.ask_named(opcode::RMDIR, c.home, &[], &[0]);
        },
    ),
    changing(
        "rename",
        |c| c.create(),
        |c| {
            let home = c.home.to_ne_bytes();
            c.ask_named(opcode::RENAME2, c.home, &[&home, &[0; 8]], &[0, 1]);
        },
    ),
    changing(
        "rename across",
        |c| c.create(),
        |c| {
            let away = c.away.to_ne_bytes();
            c.ask_named(opcode::RENAME2, c.home, &[&away, &[0; 8]], &[0, 1]);
        },
    ),
    changing(
        "setattr",
        |_| (),
        |c| {
            let mut body = [0; 88];
            body[..4].copy_from_slice(&fattr::MODE.to_ne_bytes());
            body[68..72].copy_from_slice(&(0o100_600 | (c.round as u32 % 2)).to_ne_bytes());
            c.ask(opcode::SETATTR, c.file, &[&body]);
        },
    ),
];

const FILE: &str = "file";

/// A client, and the thread that serves it.
struct Client<'s> {
    server: &'s Server,
    kernel: &'s Channel,
    outbox: Outbox,
    request: Vec<u8>,
    me: usize,
    round: u64,
    home: u64,
    away: u64,
    file: u64,
    /// The names of this round, and the node to which the first name refers.
    names: [String; 2],
    node: u64,
    page: Vec<u8>,
}

fn words<const N: usize>(words: [u32; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

impl<'s> Client<'s> {
    fn new(server: &'s Server, kernel: &'s Channel, me: usize) -> Client<'s> {
        Client {
            server,
            kernel,
            outbox: Outbox::new(),
            request: Vec::with_capacity(2 * PAGE as usize),
            me,
            round: 0,
            home: 0,
            away: 0,
            file: 0,
            names: Default::default(),
            node: 0,
            page: vec![me as u8; PAGE as usize],
        }
    }

    /// Serves a request that cannot fail. Returns the first number of the reply.
    fn ask(&mut self, opcode: u32, node: u64, body: &[&[u8]]) -> u64 {
        self.try_ask(opcode, node, body).expect("a request that cannot fail")
    }

    /// Serves a request and encodes the reply.
    fn try_ask(&mut self, opcode: u32, node: u64, body: &[&[u8]]) -> Result<u64, Errno> {
        let len = 40 + body.iter().map(|part| part.len()).sum::<usize>();
        let bytes = &mut self.request;
        bytes.clear();
        bytes.extend_from_slice(&(len as u32).to_ne_bytes());
        bytes.extend_from_slice(&opcode.to_ne_bytes());
        bytes.extend_from_slice(&7_u64.to_ne_bytes());
        bytes.extend_from_slice(&node.to_ne_bytes());
        for word in [0, 0, 1000 + self.me as u32, 0] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        body.iter().for_each(|part| bytes.extend_from_slice(part));
        let request = Request::new(bytes).expect("a header");
        match self.server.serve(request, &mut self.outbox, self.kernel)? {
            Answer::Reply => {
                let reply = self.outbox.finish(7, None).get(16..24);
                let number = reply.and_then(|bytes| bytes.try_into().ok());
                Ok(number.map_or(0, u64::from_ne_bytes))
            }
            Answer::Silence => Ok(0),
        }
    }

    /// Works like [`Client::ask`], with names of this round appended to the body.
    fn ask_named(&mut self, opcode: u32, node: u64, body: &[&[u8]], names: &[usize]) -> u64 {
        let own = std::mem::take(&mut self.names);
        let mut parts: Vec<&[u8]> = body.to_vec();
        for name in names {
            parts.extend([own[*name].as_bytes(), b"\0"]);
        }
        let number = self.ask(opcode, node, &parts);
        self.names = own;
        number
    }

    fn offset(&self) -> [u8; 8] {
        (self.me as u64 % PAGES * PAGE).to_ne_bytes()
    }

    fn look_up(&mut self, name: &str) {
        let home = self.home;
        self.ask(opcode::LOOKUP, home, &[name.as_bytes(), b"\0"]);
    }

    fn open_and_release(&mut self, flags: i32) {
        let file = self.file;
        let fh = self.ask(opcode::OPEN, file, &[&words([flags as u32, 0])]);
        self.ask(opcode::RELEASE, file, &[&fh.to_ne_bytes(), &words([flags as u32, 0, 0, 0])]);
    }

    fn write(&mut self, write_flags: u32) {
        let (page, offset) = (std::mem::take(&mut self.page), self.offset());
        let rest = words([PAGE as u32, write_flags, 0, 0, libc::O_RDWR as u32, 0]);
        self.ask(opcode::WRITE, self.file, &[&[0; 8], &offset, &rest, &page]);
        self.page = page;
    }

    fn read_dir(&mut self, opcode: u32) {
        let home = self.home;
        self.ask(opcode, home, &[&[0; 16], &words([PAGE as u32, 0]), &[0; 16]]);
        if opcode == opcode::READDIRPLUS {
            // The reply to READDIRPLUS counts as a look-up of each name in it, so the look-up of
            // the client's file has to be forgotten.
            self.ask(opcode::FORGET, self.file, &[&1_u64.to_ne_bytes()]);
        }
    }

    fn create(&mut self) {
        let flags = libc::O_RDWR as u32;
        let home = self.home;
        self.node = self.ask_named(opcode::CREATE, home, &[&words([flags, 0o100_644, 0, 0])], &[0]);
        let node = self.node;
        self.ask(opcode::RELEASE, node, &[&[0; 8], &words([flags, 0, 0, 0])]);
    }

    fn unlink(&mut self) {
        let home = self.home;
        self.ask_named(opcode::UNLINK, home, &[], &[0]);
        self.forget();
    }

    fn forget(&mut self) {
        let node = std::mem::take(&mut self.node);
        if node != 0 {
            self.ask(opcode::FORGET, node, &[&1_u64.to_ne_bytes()]);
        }
    }

    fn mkdir(&mut self) {
        let home = self.home;
        self.node = self.ask_named(opcode::MKDIR, home, &[&words([0o755, 0])], &[0]);
    }

    /// Creates the client's directories and file. With `Setting::ServedFile`, uses the directory
    /// and the file of the first client instead, if `first` has them. Returns the nodes of the
    /// directory and of the file.
    fn enter(&mut self, setting: Setting, first: Option<(u64, u64)>) -> (u64, u64) {
        let mkdir = |client: &mut Self, name: String| {
            let body: [&[u8]; 3] = [&words([0o755, 0]), name.as_bytes(), b"\0"];
            client.ask(opcode::MKDIR, ROOT_ID, &body)
        };
        if let (Setting::ServedFile, Some((home, file))) = (setting, first) {
            (self.home, self.file) = (home, file);
            return (home, file);
        }
        let name = setting.name();
        self.home = mkdir(self, format!("{name}-{}", self.me));
        self.away = mkdir(self, format!("{name}-{}-away", self.me));
        let home = self.home;
        let body = words([libc::O_RDWR as u32, 0o100_644, 0, 0]);
        self.file = self.ask(opcode::CREATE, home, &[&body, FILE.as_bytes(), b"\0"]);
        let all = vec![1; (PAGE * PAGES) as usize];
        let rest = words([all.len() as u32, 0, 0, 0, libc::O_RDWR as u32, 0]);
        self.ask(opcode::WRITE, self.file, &[&[0; 16], &rest, &all]);
        (self.home, self.file)
    }

    /// Removes the names that the previous round left, and selects names that did not exist before.
    fn next_round(&mut self) {
        self.forget();
        for (dir, name) in [(self.home, 0), (self.home, 1), (self.away, 1)] {
            let name = self.names[name].clone();
            if dir != 0 && !name.is_empty() {
                for opcode in [opcode::UNLINK, opcode::RMDIR] {
                    // Most operations leave none of these names, so an error is ignored.
                    let _ = self.try_ask(opcode, dir, &[name.as_bytes(), b"\0"]);
                }
            }
        }
        self.round += 1;
        self.names = ["", "-other"].map(|suffix| format!("{}-{}{suffix}", self.me, self.round));
    }
}

/// Traces each operation on two threads, and compares all pairs of their traces.
pub fn trace(
    reasons: &mut Reasons,
    setting: Setting,
    granule: Granule,
    only: &[String],
    rounds: usize,
) -> Result<Vec<Pair>, AnyError> {
    let device = Arc::new(RamDevice::create(64 << 30)?);
    let options = FormatOptions::new().contents(Contents::Zeros);
    lanefs::FileSystem::format(&*device, &options)?;
    let commit_interval = Duration::from_secs(3600);
    let options = MountOptions { commit_interval, ..MountOptions::default() };
    let mount = Mount::open(device, options)?;
    let server = Server::new(mount, Wishes::default(), Ids::default())?;
    let nowhere = Channel::new(std::fs::File::options().write(true).open("/dev/null")?.into());
    let recorder = Mutex::new(Recorder::new()?);
    let traces = Workers::with(
        2,
        |me| Client::new(&server, &nowhere, me),
        |workers| {
            let first = workers.on(0, |client| client.enter(setting, None));
            workers.on(1, |client| client.enter(setting, Some(first)));
            let wanted = OPERATIONS
                .iter()
                .filter(|op| setting != Setting::ServedFile || op.commutes)
                .filter(|op| only.is_empty() || only.iter().any(|word| selects(word, op.name)));
            wanted.map(|op| trace_one(workers, &recorder, op, rounds)).collect::<Vec<_>>()
        },
    );
    server.close()?;
    let traces = traces.into_iter().map(|(name, whole)| Trace::new(name, whole, granule, reasons));
    let traces: Vec<Trace> = traces.collect();
    reasons.look_again();
    Ok(matrix::compare(&traces, reasons, setting, granule))
}

fn trace_one(
    workers: &Workers<'_, Client<'_>>,
    recorder: &Mutex<Recorder>,
    operation: &'static Served,
    rounds: usize,
) -> (&'static str, [Footprint; 2]) {
    workers.on(0, |client| client.ask(opcode::SYNCFS, ROOT_ID, &[&[0; 8]]));
    let mut whole = [Footprint::new(), Footprint::new()];
    for round in 0..WARM + rounds {
        for thread in 0..2 {
            workers.on(thread, |client| {
                client.next_round();
                (operation.prepare)(client);
            });
        }
        for (thread, all) in whole.iter_mut().enumerate() {
            if round < WARM {
                workers.on(thread, |client| (operation.act)(client));
                continue;
            }
            let mut recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
            let steps = &mut *recorder;
            workers.on(thread, |client| steps.step(|| (operation.act)(client)));
            all.merge(&recorder.footprint());
        }
    }
    (operation.name, whole)
}

/// Returns whether an operation of the server has a name that contains `part`.
pub fn is_known(part: &str) -> bool {
    OPERATIONS.iter().any(|op| selects(part, op.name))
}
