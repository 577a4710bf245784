//! Counts requests of each kind, and their service times.
//!
//! Each thread adds to its own lane's counters; a reader sums up the lanes. The kernel serves many
//! system calls from its caches, so these are counts of requests, not of system calls.

use crate::protocol::abi::opcode;
use crate::transport::{ByRead, Carried};
use lanefs_lanes::PerLane;
use lanefs_lanes::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::fmt::Write;
use std::time::Duration;

/// The attribute of the root directory whose value is the counters as text. Only the owner of the
/// mount and user root may read it. listxattr does not list this attribute, and it is never on
/// disk.
pub const ATTRIBUTE: &[u8] = b"system.lanefs_statistics";

/// The operations that are counted separately, and the names of their counters.
const KINDS: [(u32, &str); 24] = [
    (opcode::LOOKUP, "lookup"),
    (opcode::FORGET, "forget"),
    (opcode::BATCH_FORGET, "batch_forget"),
    (opcode::GETATTR, "getattr"),
    (opcode::SETATTR, "setattr"),
    (opcode::CREATE, "create"),
    (opcode::MKDIR, "mkdir"),
    (opcode::UNLINK, "unlink"),
    (opcode::RMDIR, "rmdir"),
    (opcode::RENAME2, "rename"),
    (opcode::LINK, "link"),
    (opcode::SYMLINK, "symlink"),
    (opcode::READLINK, "readlink"),
    (opcode::OPEN, "open"),
    (opcode::RELEASE, "release"),
    (opcode::READ, "read"),
    (opcode::WRITE, "write"),
    (opcode::READDIR, "readdir"),
    (opcode::READDIRPLUS, "readdirplus"),
    (opcode::FSYNC, "fsync"),
    (opcode::FALLOCATE, "fallocate"),
    (opcode::GETXATTR, "getxattr"),
    (opcode::SETXATTR, "setxattr"),
    (opcode::STATFS, "statfs"),
];
/// The row of all other operations.
const OTHER: usize = KINDS.len();

/// The number of time classes: under 1 us, 4 us, 16 us and so on; the last class has no limit.
const STEPS: usize = 9;

/// The counters of one kind of request, on one lane.
#[derive(Default)]
struct Row {
    count: AtomicU64,
    nanos: AtomicU64,
    under: [AtomicU64; STEPS],
}

/// The counters of the requests of a mount.
pub(super) struct Tally {
    lanes: PerLane<[Row; OTHER + 1]>,
    /// For each opcode, the index of its row in the array of a lane.
    rows: [u8; 64],
    /// The number of io_uring queues by which requests come; 0: requests come by read(2).
    queues: AtomicU64,
    /// Whether the kernel offers io_uring, even if a mount option selected read(2).
    has_rings: AtomicBool,
}

fn step_of(nanos: u64) -> usize {
    let micros = nanos / 1000;
    // The upper bound of a class is four times that of the previous class, so half the position of
    // the highest bit gives the class.
    (micros.checked_ilog2().map_or(0, |bits| bits as usize / 2 + 1)).min(STEPS - 1)
}

impl Tally {
    pub(super) fn new() -> Tally {
        let mut rows = [OTHER as u8; 64];
        for (row, (code, _)) in (0..).zip(KINDS) {
            if let Some(place) = rows.get_mut(code as usize) {
                *place = row;
            }
        }
        rows[opcode::RENAME as usize] = rows[opcode::RENAME2 as usize];
        rows[opcode::FSYNCDIR as usize] = rows[opcode::FSYNC as usize];
        Tally {
            lanes: PerLane::new(|_| std::array::from_fn(|_| Row::default())),
            rows,
            queues: AtomicU64::new(0),
            has_rings: AtomicBool::new(false),
        }
    }

    pub(super) fn note_carried(&self, carried: &Carried) {
        let (queues, has_rings) = match carried {
            Carried::ByRing(queues) => (*queues as u64, true),
            Carried::ByRead(ByRead::NotOffered) => (0, false),
            Carried::ByRead(ByRead::Wanted { has_rings }) => (0, *has_rings),
            Carried::ByRead(ByRead::Refused(_)) => (0, true),
        };
        self.queues.store(queues, Ordering::Relaxed);
        self.has_rings.store(has_rings, Ordering::Relaxed);
    }

    /// Counts one request and its service time.
    pub(super) fn count(&self, opcode: u32, time: Duration) {
        let row = self.rows.get(opcode as usize).map_or(OTHER, |row| usize::from(*row));
        let Some(row) = self.lanes.mine().get(row) else { return };
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        row.count.fetch_add(1, Ordering::Relaxed);
        row.nanos.fetch_add(nanos, Ordering::Relaxed);
        if let Some(under) = row.under.get(step_of(nanos)) {
            under.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Appends the figures of the transport, and of each kind of request that occurred, one figure
    /// per line.
    pub(super) fn append_to(&self, text: &mut String) {
        let _ = writeln!(text, "transport.queues {}", self.queues.load(Ordering::Relaxed));
        let offered = u8::from(self.has_rings.load(Ordering::Relaxed));
        let _ = writeln!(text, "transport.ring_offered {offered}");
        let names = KINDS.iter().map(|(_, name)| *name).chain(["other"]);
        for (row, name) in names.enumerate() {
            let rows: Vec<&Row> = self.lanes.iter().filter_map(|rows| rows.get(row)).collect();
            // The counters of lanes may wrap, so they are added with wrapping too.
            let sum = |of: &dyn Fn(&Row) -> Option<&AtomicU64>| -> u64 {
                let counters = rows.iter().filter_map(|row| of(row));
                counters.map(|n| n.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
            };
            let count = sum(&|row| Some(&row.count));
            if count == 0 {
                continue;
            }
            // Writing to a string does not fail.
            let _ = writeln!(text, "request.{name}.count {count}");
            let _ = writeln!(text, "request.{name}.ns {}", sum(&|row| Some(&row.nanos)));
            for step in 0..STEPS {
                let under = sum(&|row| row.under.get(step));
                let limit = if step + 1 == STEPS {
                    "more".into()
                } else {
                    (1u64 << (2 * step)).to_string()
                };
                let _ = writeln!(text, "request.{name}.under_us.{limit} {under}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_steps_of_four() {
        let steps = [0, 999, 1000, 3999, 4000, 15_999, 16_000, u64::MAX].map(step_of);
        assert_eq!(steps, [0, 0, 1, 1, 2, 2, 3, STEPS - 1]);
    }

    #[test]
    fn requests_are_counted_by_kind_over_all_threads() {
        let tally = Tally::new();
        // The threads must exist at the same time in order to have different lanes.
        let all_alive = lanefs_lanes::sync::unscheduled::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    all_alive.wait();
                    for _ in 0..100 {
                        tally.count(opcode::LOOKUP, Duration::from_micros(2));
                        tally.count(opcode::RENAME, Duration::from_micros(2));
                        tally.count(opcode::DESTROY, Duration::ZERO);
                        tally.count(4096, Duration::MAX);
                    }
                });
            }
        });
        let mut text = String::new();
        tally.append_to(&mut text);
        let lines = [
            "request.lookup.count 400",
            "request.lookup.ns 800000",
            "request.lookup.under_us.4 400",
            "request.rename.count 400",
            "request.other.count 800",
            "request.other.under_us.more 400",
        ];
        for line in lines {
            assert!(text.lines().any(|stated| stated == line), "{line} in {text}");
        }
        assert!(!text.contains("unlink"), "{text}");
    }
}
