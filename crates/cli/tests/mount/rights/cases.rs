//! The cases: each operation on each relevant object, by each caller.

use super::*;

const AT: Stamp = Stamp::At(1_234_567_890, 123_456_789);
/// A time that an inode of 128 bytes cannot store. The next two times cannot be stored in an inode
/// of 256 bytes either.
const LATE: Stamp = Stamp::At(3_000_000_000, 7);
const LATEST: Stamp = Stamp::At(1 << 34, 999_999_999);
const EARLY: Stamp = Stamp::At(-3_000_000_000, 5);

const NODUMP: u32 = 0x40;
const NOATIME: u32 = 0x80;
const IMMUTABLE: u32 = 0x10;
const APPEND_ONLY: u32 = 0x20;

/// Operations on a file. Their results do not depend on the directory of the file.
const FILE_OPS: &[Op] = &[
    Op::Chmod(0o640),
    Op::Chmod(0o2755),
    Op::Chmod(0o6745),
    Op::Chown(Some(OWNER), None),
    Op::Chown(Some(STRANGER), None),
    Op::Chown(None, Some(GROUP)),
    Op::Chown(None, Some(OTHER_GROUP)),
    Op::Chown(Some(STRANGER), Some(OTHER_GROUP)),
    Op::Chown(None, None),
    Op::Times(Stamp::Now, Stamp::Now),
    Op::Times(AT, AT),
    Op::Times(AT, Stamp::Omit),
    Op::Times(Stamp::Omit, AT),
    Op::Times(Stamp::Now, Stamp::Omit),
    Op::Times(Stamp::Omit, Stamp::Now),
    Op::Times(Stamp::Now, AT),
    Op::Times(AT, Stamp::Now),
    Op::Truncate(0),
    Op::Truncate(10_000),
    Op::Open(How::Write),
    Op::Open(How::Append),
    Op::Open(How::Truncate),
    Op::Open(How::NoAtime),
    Op::Append,
    Op::Overwrite,
    Op::Allocate,
    Op::Punch,
    Op::Read,
    Op::ReadNoAtime,
    Op::Old(OldOp::Truncate(0)),
    Op::Old(OldOp::Truncate(10_000)),
    Op::Old(OldOp::Write),
    Op::Old(OldOp::Allocate),
    Op::Old(OldOp::Punch),
    Op::Old(OldOp::Chmod),
    Op::Old(OldOp::Chown),
    Op::Old(OldOp::Times(Stamp::Now, Stamp::Now)),
    Op::Old(OldOp::Times(AT, AT)),
    Op::Old(OldOp::Times(Stamp::Omit, Stamp::Now)),
    Op::Old(OldOp::SetXattr),
    Op::SetXattr("user.new"),
    Op::SetXattr("user.there"),
    Op::SameXattr("user.there"),
    Op::SetXattr("trusted.new"),
    Op::SetXattr("security.new"),
    Op::RemoveXattr("user.there"),
    Op::RemoveXattr("user.absent"),
    Op::RemoveXattr("trusted.there"),
    Op::GetXattr("user.there"),
    Op::GetXattr("trusted.there"),
    Op::GetXattr("user.absent"),
    Op::ListXattr,
    Op::SetAcl(Which::Access, List::Minimal),
    Op::SetAcl(Which::Access, List::Named),
    Op::SetAcl(Which::Default, List::Named),
    Op::RemoveAcl(Which::Access),
    Op::RemoveAcl(Which::Default),
    Op::GetAcl(Which::Access),
    Op::Chattr(IMMUTABLE, 0),
    Op::Chattr(APPEND_ONLY, 0),
    Op::Chattr(0, IMMUTABLE | APPEND_ONLY),
    Op::Chattr(NODUMP, 0),
    Op::Chattr(NOATIME, IMMUTABLE),
    Op::Stat,
];

/// Operations that set times at or beyond the limits of what an inode can store.
const CLOCK_OPS: &[Op] = &[
    Op::Times(LATE, LATE),
    Op::Times(LATEST, Stamp::Omit),
    Op::Times(Stamp::Omit, LATEST),
    Op::Times(EARLY, EARLY),
    Op::Times(Stamp::Omit, Stamp::At((1 << 34) - (1 << 31) - 1, 999_999_999)),
    Op::Times(Stamp::At(-(1 << 31), 0), Stamp::At(i32::MAX as i64, 999_999_999)),
    Op::Times(Stamp::At(i32::MAX as i64 + 1, 5), Stamp::At(-(1 << 31) - 1, 999_999_999)),
];

const NAME_OPS: &[Op] =
    &[Op::Link, Op::Rename, Op::RenameAway, Op::RenameOver, Op::Exchange, Op::Unlink];

const DIRECTORY_OPS: &[Op] = &[
    Op::Chmod(0o750),
    Op::Chmod(0o3775),
    Op::Chown(Some(STRANGER), None),
    Op::Chown(None, Some(OTHER_GROUP)),
    Op::Chown(None, None),
    Op::Times(Stamp::Now, Stamp::Now),
    Op::Times(AT, AT),
    Op::Times(Stamp::Omit, Stamp::Now),
    Op::Truncate(0),
    Op::Link,
    Op::Rename,
    Op::RenameAway,
    Op::Rmdir,
    Op::SetXattr("user.new"),
    Op::SetXattr("trusted.new"),
    Op::RemoveXattr("user.there"),
    Op::ListXattr,
    Op::SetAcl(Which::Access, List::Minimal),
    Op::SetAcl(Which::Access, List::Named),
    Op::SetAcl(Which::Default, List::Named),
    Op::RemoveAcl(Which::Access),
    Op::RemoveAcl(Which::Default),
    Op::GetAcl(Which::Default),
    Op::Chattr(IMMUTABLE, 0),
    Op::Chattr(APPEND_ONLY, 0),
    Op::Chattr(0, IMMUTABLE | APPEND_ONLY),
    Op::Chattr(NODUMP, 0),
    Op::MakeIn(Kind::File),
    Op::MakeIn(Kind::Directory),
    Op::MakeIn(Kind::Symlink),
    Op::UnlinkIn,
    Op::ListIn,
    Op::Stat,
];

const OTHER_OPS: &[Op] = &[
    Op::Chmod(0o600),
    Op::Chown(None, Some(OTHER_GROUP)),
    Op::Chown(Some(STRANGER), None),
    Op::Times(Stamp::Now, Stamp::Now),
    Op::Times(AT, AT),
    Op::SetXattr("user.new"),
    Op::SetXattr("trusted.new"),
    Op::ListXattr,
    Op::Link,
    Op::Unlink,
    Op::ReadLink,
    Op::Stat,
];

fn objects() -> Vec<(Object, &'static [Op])> {
    let plain =
        |kind, mode| Object { kind, mode, flag: Flag::None, extra: Extra::Attributes, place: OPEN };
    let mut objects = Vec::new();
    for flag in FLAGS {
        for mode in [0o644, 0o600, 0o666, 0o4755, 0o2755, 0o2745, 0o6777] {
            objects.push((Object { flag, ..plain(Kind::File, mode) }, FILE_OPS));
        }
        for (mode, extra) in
            [(0o660, Extra::Lists), (0o2775, Extra::Lists), (0o777, Extra::Capabilities)]
        {
            objects.push((Object { flag, extra, ..plain(Kind::File, mode) }, FILE_OPS));
        }
        for mode in [0o755, 0o1777, 0o2775, 0o2777] {
            objects.push((Object { flag, ..plain(Kind::Directory, mode) }, DIRECTORY_OPS));
        }
        let lists = Object { flag, extra: Extra::Lists, ..plain(Kind::Directory, 0o2770) };
        objects.push((lists, DIRECTORY_OPS));
        for place in [
            OPEN,
            Parent { mode: 0o1777, ..OPEN },
            Parent { mode: 0o1777, uid: OWNER, ..OPEN },
            Parent { mode: 0o755, ..OPEN },
            Parent { flag: Flag::Immutable, ..OPEN },
            Parent { flag: Flag::AppendOnly, ..OPEN },
        ] {
            for mode in [0o644, 0o666] {
                let object = Object { flag, place, ..plain(Kind::File, mode) };
                objects.push((object, NAME_OPS));
            }
        }
    }
    objects.push((plain(Kind::File, 0o644), CLOCK_OPS));
    objects.push((plain(Kind::Directory, 0o755), CLOCK_OPS));
    objects.push((plain(Kind::Fifo, 0o666), OTHER_OPS));
    objects.push((plain(Kind::Symlink, 0o777), OTHER_OPS));
    objects
}

/// Returns all cases.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for (object, ops) in objects() {
        for &op in ops {
            for caller in 0..CALLERS.len() {
                cases.push(Case { number: cases.len(), caller, op, object });
            }
        }
    }
    cases
}

/// Returns the cases that set times at or beyond the limits of what an inode can store. They also
/// run with small inodes, which store a smaller range of times.
pub fn of_the_clock() -> Vec<Case> {
    let mut cases = all();
    cases.retain(|case| CLOCK_OPS.contains(&case.op));
    for (number, case) in cases.iter_mut().enumerate() {
        case.number = number;
    }
    cases
}
