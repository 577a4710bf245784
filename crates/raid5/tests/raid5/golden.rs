//! Assembles arrays that Linux's md created; `testdata/PROVENANCE.md` describes them.

use crate::golden_arrays::{Golden, digest, unpack};
use lanefs_device::{Access, Device, RamDevice};
use lanefs_raid5::{
    ArrayOptions, AssembleError, Candidate, DirtyAndDegraded, OpenArray, Outside, Scrub, Upkeep,
};
use std::ops::ControlFlow;
use std::sync::Arc;

const BITMAP: &str = "2432edb92eb3643f5ebad70eff7bc79c8c00e6048f8b1a7d8a26ec17a3a0176b";
const PPL: &str = "427ed8c7ee2deafc1174ad1e33cbe4d784afa8c853c270df65b8d8dfb48335a9";
const DIRTY: &str = "df746d55fc831a5dd43bd7564fa24cb63a984c4f0f2ac670b485a278fc5d7a24";
const DIRTY_WITHOUT_0: &str = "8fc9540a4b016aa076eaf0840a4b8dd2c642ec4e5b47e17a4bb478e4d23ce34b";

fn options(access: Access) -> ArrayOptions {
    ArrayOptions { upkeep: Upkeep::Caller, ..ArrayOptions::new(access) }
}

fn assemble(
    golden: &Golden,
    without: Option<usize>,
    access: Access,
) -> Result<OpenArray, AssembleError> {
    let absent = usize::from(without.is_some());
    OpenArray::assemble(golden.candidates(without), absent, options(access))
}

/// Checks the array with all members, and without each member in turn.
fn check_all(name: &str, expected: &str) {
    let Some(golden) = unpack(name) else { return };
    for without in (0..golden.members.len()).map(Some).chain([None]) {
        let array = assemble(&golden, without, Access::ReadWrite).expect("an array");
        assert_eq!(digest(&array), expected, "{name} without {without:?}");
    }
}

#[test]
fn a_clean_array_with_a_bitmap_reads_as_the_kernel_read_it() {
    check_all("bitmap", BITMAP);
}

#[test]
fn a_clean_array_with_a_partial_parity_log_ignores_old_entries() {
    check_all("ppl", PPL);
}

#[test]
fn all_six_layouts_read_as_they_were_written_whole_and_without_each_member() {
    let Some(all) = unpack("layouts") else { return };
    assert_eq!(all.members.len(), 30);
    for layout in 0..6 {
        let golden = Golden { members: all.members[layout * 5..][..5].to_vec() };
        for without in (0..5).map(Some).chain([None]) {
            let array = assemble(&golden, without, Access::ReadOnly).expect("an array");
            let mut buf = vec![0; array.len() as usize];
            array.read_at(0, &mut buf).expect("the content");
            for (sector, bytes) in buf.chunks(512).enumerate() {
                let mut expected = [sector as u8; 512];
                expected[..8].copy_from_slice(&(sector as u64).to_le_bytes());
                expected[8..16].fill(0);
                assert_eq!(bytes, expected, "layout {layout} without {without:?}, sector {sector}");
            }
        }
    }
}

#[test]
fn all_parity_of_the_kernels_clean_arrays_is_right() {
    for name in ["bitmap", "ppl"] {
        let Some(golden) = unpack(name) else { return };
        let array = assemble(&golden, None, Access::ReadOnly).expect("an array");
        let (report, _) =
            array.array().scrub(Scrub::Check, &mut |_| ControlFlow::Continue(())).expect("a scrub");
        assert_eq!((report.wrong_rows, report.skipped), (0, 0), "{name}");
    }
}

#[test]
fn members_are_put_in_order_however_they_are_given() {
    let Some(golden) = unpack("bitmap") else { return };
    let mut candidates = golden.candidates(None);
    candidates.reverse();
    candidates.swap(0, 2);
    let array = OpenArray::assemble(candidates, 0, options(Access::ReadOnly)).expect("an array");
    assert_eq!(digest(&array), BITMAP);
}

#[test]
fn a_dirty_array_is_recovered_from_its_log_as_the_kernel_does_it() {
    let Some(golden) = unpack("dirty-ppl") else { return };
    // The log corrects the parity of three rows.
    let wrong_rows = |array: &OpenArray| {
        let scrub = array.array().scrub(Scrub::Check, &mut |_| ControlFlow::Continue(()));
        scrub.expect("a scrub").0.wrong_rows
    };
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let golden = golden.copies();
        let array = assemble(&golden, None, access).expect("an array");
        assert_eq!(digest(&array), DIRTY);
        let log = array.log().expect("a log");
        assert!(log.entries > 0 && log.damaged == 0, "{log:?}");
        assert_eq!(wrong_rows(&array), 0);
        assert_eq!(array.array().status().unsynced_rows, 0, "nothing is left to resync");
    }
}

#[test]
fn a_dirty_array_without_a_member_is_recovered_from_its_log_as_the_kernel_does_it() {
    let Some(golden) = unpack("dirty-ppl") else { return };
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let first = assemble(&golden.copies(), Some(0), access).expect("an array");
        assert_eq!(digest(&first), DIRTY_WITHOUT_0, "{access:?}");
        // Data that was being written to the missing member is lost; other blocks are intact.
        let whole = assemble(&golden.copies(), None, access).expect("an array");
        for without in 1..4 {
            let array = assemble(&golden.copies(), Some(without), access).expect("an array");
            let (mut one, mut other) = (vec![0; 4096], vec![0; 4096]);
            for block in (0..array.len() / 4096).filter(|block| !was_written(*block)) {
                array.read_at(block * 4096, &mut one).expect("a block");
                whole.read_at(block * 4096, &mut other).expect("a block");
                assert!(one == other, "block {block} without member {without}");
            }
        }
    }
}

/// Returns whether one of the eight writes under way at the power cut covered this block.
fn was_written(block: u64) -> bool {
    let writes = [
        (10, 3, 1),
        (11, 3, 1),
        (12, 12, 12),
        (13, 0, 48),
        (15, 0, 32),
        (16, 20, 4),
        (17, 2, 6),
        (19, 40, 8),
    ];
    writes
        .iter()
        .any(|(row, first, count)| (row * 48 + first..row * 48 + first + count).contains(&block))
}

#[test]
fn a_recovered_array_is_clean_and_its_log_empty() {
    let Some(golden) = unpack("dirty-ppl") else { return };
    let before = golden.candidates(None)[0].superblock.events();
    assemble(&golden, None, Access::ReadWrite).expect("an array").close().expect("closed");
    for candidate in golden.candidates(None) {
        assert_eq!(candidate.superblock.resync_from(), None);
        assert!(candidate.superblock.events() > before);
    }
    let again = assemble(&golden, None, Access::ReadWrite).expect("an array");
    assert_eq!((again.log(), digest(&again).as_str()), (None, DIRTY));
}

#[test]
fn reading_writes_nothing_to_the_members() {
    for name in ["bitmap", "ppl", "dirty-ppl"] {
        let Some(golden) = unpack(name) else { return };
        let before: Vec<String> = golden.members.iter().map(|m| digest(&*m.device)).collect();
        let array = assemble(&golden, None, Access::ReadOnly).expect("an array");
        digest(&array);
        array.write_at(0, b"no").expect_err("read only");
        drop(array);
        let after: Vec<String> = golden.members.iter().map(|m| digest(&*m.device)).collect();
        assert_eq!(before, after, "{name}");
    }
}

#[test]
fn opening_a_clean_array_with_a_bitmap_writes_nothing_either() {
    let Some(golden) = unpack("bitmap") else { return };
    let before: Vec<String> = golden.members.iter().map(|m| digest(&*m.device)).collect();
    assemble(&golden, None, Access::ReadWrite).expect("an array").close().expect("closed");
    let after: Vec<String> = golden.members.iter().map(|m| digest(&*m.device)).collect();
    assert_eq!(before, after);
}

#[test]
fn two_arrays_are_never_mixed() {
    let (Some(one), Some(other)) = (unpack("bitmap"), unpack("ppl")) else { return };
    let mut candidates = one.candidates(Some(2));
    candidates.push(other.candidates(None).remove(2));
    let error = OpenArray::assemble(candidates, 0, options(Access::ReadOnly)).expect_err("refused");
    assert!(matches!(error, AssembleError::Mixed { .. }), "{error}");
}

#[test]
fn a_member_or_its_copy_given_twice_is_refused() {
    let Some(golden) = unpack("bitmap") else { return };
    let mut candidates = golden.candidates(Some(3));
    candidates.push(candidates[1].clone());
    let error = OpenArray::assemble(candidates, 0, options(Access::ReadOnly)).expect_err("refused");
    assert!(matches!(error, AssembleError::Twice { .. }), "{error}");
}

#[test]
fn an_absent_member_must_be_named_missing() {
    let Some(golden) = unpack("bitmap") else { return };
    let error = OpenArray::assemble(golden.candidates(Some(1)), 0, options(Access::ReadOnly));
    let error = error.expect_err("refused");
    assert!(matches!(error, AssembleError::Absent { given: 3, members: 4 }), "{error}");
}

#[test]
fn two_missing_members_are_too_many() {
    let Some(golden) = unpack("bitmap") else { return };
    let mut candidates = golden.candidates(Some(1));
    candidates.remove(0);
    let error = OpenArray::assemble(candidates, 2, options(Access::ReadOnly)).expect_err("refused");
    assert!(
        matches!(&error, AssembleError::TooManyMissing { missing, .. } if *missing == [0, 1]),
        "{error}"
    );
}

#[test]
fn a_stale_member_is_left_out() {
    let Some(golden) = unpack("bitmap") else { return };
    // The array is written while member 1 is missing; then member 1 comes back unchanged.
    let array = assemble(&golden, Some(1), Access::ReadWrite).expect("an array");
    array.write_at(12345, b"without member 1").expect("written");
    array.flush().expect("flushed");
    array.close().expect("closed");
    let array = assemble(&golden, None, Access::ReadOnly).expect("an array");
    let out = array.left_out();
    assert!(matches!(out[0].why, Outside::Stale { events: 21, .. }), "{out:?}");
    let mut buf = [0; 16];
    array.read_at(12345, &mut buf).expect("read");
    assert_eq!(&buf, b"without member 1");
}

#[test]
fn a_dirty_array_without_a_log_and_a_member_is_refused_unless_that_is_accepted() {
    let Some(golden) = unpack("bitmap") else { return };
    for member in &golden.members {
        let mut dirty = Candidate::read(&member.name, member.device.clone()).expect("a member");
        dirty.superblock.set_resync_from(Some(0));
        member.device.write_at(4096, &dirty.superblock.encode()).expect("written");
    }
    let error = assemble(&golden, Some(2), Access::ReadWrite).expect_err("refused");
    assert!(matches!(error, AssembleError::DirtyAndDegraded { slot: 2, .. }), "{error}");
    assert!(error.to_string().contains("wrong, without an error"), "{error}");
    let accept =
        ArrayOptions { dirty_and_degraded: DirtyAndDegraded::Accept, ..options(Access::ReadWrite) };
    let array = OpenArray::assemble(golden.candidates(Some(2)), 1, accept).expect("an array");
    assert_eq!(digest(&array), BITMAP);
}

#[test]
fn a_device_without_a_superblock_is_named() {
    let device = Arc::new(RamDevice::create(1 << 20).expect("memory"));
    let error = Candidate::read("empty.img".as_ref(), device).expect_err("refused");
    assert_eq!(error.to_string(), "empty.img: no md superblock");
}
