//! The known differences from the kernel's ext4, each with its reason. docs/library.md and
//! docs/mount.md describe the differences that matter to users.

use super::*;

/// How an operation is done, and how its result is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Library,
    /// A mount with the kernel's writeback cache, which is the default.
    Mount,
    /// A mount with `no_writeback`.
    Writethrough,
    /// The stored result of [`By::Mount`], which the kernel's ext4 shows after the unmount.
    Stored,
    StoredWritethrough,
}

impl By {
    fn is_mount(self) -> bool {
        self != By::Library
    }

    /// Returns whether the kernel itself keeps the times and sizes of regular files, and shows them
    /// instead of the server's values.
    fn is_shown_by_writeback(self) -> bool {
        self == By::Mount
    }

    fn is_writeback(self) -> bool {
        matches!(self, By::Mount | By::Stored)
    }
}

/// The result of a case: the outcome, and the observations afterwards, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    pub outcome: Outcome,
    pub seen: Vec<String>,
}

/// An expected difference from the kernel's ext4.
pub struct Listed {
    pub reason: &'static str,
    /// Returns whether the difference may occur in this case. The first trial is the kernel's, the
    /// second is Lanefs's.
    pub applies: fn(By, &Case, &Trial, &Trial) -> bool,
}

const EPERM: Outcome = Err(1);
const EACCES: Outcome = Err(13);

/// Returns whether the two trials are equal, or differ only in the times that `which` names.
fn only_times(theirs: &Trial, ours: &Trial, which: &[&str]) -> bool {
    let without = |lines: &[String]| -> Vec<String> {
        let strip = |line: &String| {
            let mut words: Vec<&str> = line.split(' ').collect();
            for what in which {
                if let Some(at) = words.iter().position(|word| word == what) {
                    words.drain(at..at + 2);
                }
            }
            words.join(" ")
        };
        lines.iter().map(strip).collect()
    };
    theirs.outcome == ours.outcome && without(&theirs.seen) == without(&ours.seen)
}

/// Returns whether chattr set the object's flag during the trial.
fn was_flagged(case: &Case) -> bool {
    matches!(case.op, Op::Old(_)) && case.object.flag != Flag::None
}

fn is_file(case: &Case) -> bool {
    case.object.kind == Kind::File
}

pub const LISTED: &[Listed] = &[
    Listed {
        reason: "fs.protected_hardlinks is a rule of the kernel, not of file systems",
        applies: |by, case, theirs, _| {
            by == By::Library && case.op == Op::Link && case.caller != 0 && theirs.outcome == EPERM
        },
    },
    Listed {
        reason: "chown(-1, -1) removes set-ID bits and capabilities on ext4; the library takes it \
                 for no change, and the kernel's FUSE does not pass it on",
        applies: |_, case, _, _| case.op == Op::Chown(None, None),
    },
    Listed {
        reason: "the kernel's FUSE does not know flags: it checks the mode first, and answers \
                 EACCES",
        applies: |by, case, theirs, ours| {
            let flags = [case.object.flag, case.object.place.flag];
            let flagged = flags.iter().any(|flag| *flag != Flag::None);
            let errors = theirs.outcome == EPERM && ours.outcome == EACCES;
            by.is_mount() && flagged && errors && theirs.seen == ours.seen
        },
    },
    Listed {
        reason: "the kernel's FUSE removes file capabilities before it asks the server for a \
                 change: a file that refuses the change loses them",
        applies: |by, case, theirs, ours| {
            by.is_mount()
                && case.object.extra == Extra::Capabilities
                && case.object.flag == Flag::AppendOnly
                && theirs.outcome == EPERM
                && ours.outcome == EPERM
        },
    },
    Listed {
        reason: "the kernel answers requests for the default ACL of a file itself, without \
                 looking at flags",
        applies: |by, case, theirs, ours| {
            let list =
                matches!(case.op, Op::SetAcl(Which::Default, _) | Op::RemoveAcl(Which::Default));
            by.is_mount() && list && is_file(case) && theirs.seen == ours.seen
        },
    },
    Listed {
        reason: "the kernel does not pass on a caller's supplementary groups: set-group-ID \
                 without group execution stays when a caller outside the group writes or changes \
                 the owner",
        applies: |by, case, _, _| {
            let outside = case.caller().gid != GROUP && !case.caller().groups.contains(&GROUP);
            let writes = matches!(
                case.op,
                Op::Chown(..)
                    | Op::Truncate(_)
                    | Op::Open(How::Truncate)
                    | Op::Append
                    | Op::Overwrite
                    | Op::Allocate
                    | Op::Punch
                    | Op::Old(_)
            );
            by.is_mount() && outside && writes && case.caller != 0 && case.object.mode == 0o2745
        },
    },
    Listed {
        reason: "the kernel's FUSE sets the times of a file before it asks the server for a \
                 change: it shows new times after a refused write",
        applies: |by, case, theirs, ours| {
            let writes = matches!(
                case.op,
                Op::Append
                    | Op::Allocate
                    | Op::Punch
                    | Op::Old(OldOp::Allocate | OldOp::Punch | OldOp::Write)
            );
            let times = only_times(theirs, ours, &["mtime", "ctime"]);
            by.is_writeback() && writes && ours.outcome == EPERM && times
        },
    },
    Listed {
        reason: "with its writeback cache the kernel keeps its own ctime of a regular file: it \
                 shows a change by chattr(1) only after it has forgotten the file",
        applies: |by, case, theirs, ours| {
            let flags = matches!(case.op, Op::Chattr(..)) || was_flagged(case);
            by.is_shown_by_writeback()
                && flags
                && is_file(case)
                && only_times(theirs, ours, &["ctime"])
        },
    },
    Listed {
        reason: "the kernel's FUSE changes the ctime of a regular file whenever an attribute is \
                 set or an access ACL is removed, although nothing changes",
        applies: |by, case, theirs, ours| {
            let nothing = matches!(case.op, Op::SameXattr(_) | Op::RemoveAcl(Which::Access));
            by.is_writeback() && nothing && is_file(case) && only_times(theirs, ours, &["ctime"])
        },
    },
    Listed {
        reason: "with its writeback cache the kernel shows the mtime that a caller set; the inode \
                 stores the nearest time that fits",
        applies: |by, case, theirs, ours| {
            by.is_shown_by_writeback()
                && matches!(case.op, Op::Times(..))
                && is_file(case)
                && only_times(theirs, ours, &["mtime"])
        },
    },
    Listed {
        reason: "the kernel's writeback cache accepts writes through a descriptor that was opened \
                 before chattr +i; close or fsync reports that they are refused",
        applies: |by, case, theirs, ours| {
            by.is_writeback()
                && case.op == Op::Old(OldOp::Write)
                && case.object.flag == Flag::Immutable
                && theirs.outcome == EPERM
                && ours.outcome.is_ok()
        },
    },
    Listed {
        reason: "a write of part of a page through a descriptor that can also read makes the \
                 kernel read the page, which changes atime",
        applies: |by, case, theirs, ours| {
            by.is_writeback()
                && case.op == Op::Old(OldOp::Write)
                && only_times(theirs, ours, &["atime", "ctime"])
        },
    },
];
