//! The life of arrays: each test creates an array, which then goes through failures and repairs.

use crate::rig::hook::{HookDevice, Kind, Outcome};
use crate::rig::made::{ALL, LEN, Members, content, ram, scribble, wrong_rows};
use lanefs_device::{Access, Device, Duration, Fault, FaultyDevice, Operation, RamDevice};
use lanefs_lanes::sync::unscheduled::Mutex;
use lanefs_ondisk::md::{Recovery, Role, SUPERBLOCK_OFFSET, Uuid};
use lanefs_raid5::{
    Added, ArrayOptions, AssembleError, Candidate, CatchUp, CreateOptions, DirtyAndDegraded, Ended,
    InitialParity, InvalidRequest, Layout, MemberFault, NewConsistency, NewMember, OpenArray,
    Outside, Progress, Rebuild, Replaced, Standing, Upkeep, create,
};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

#[test]
fn data_can_be_read_without_any_one_member() {
    for consistency in ALL {
        let members = Members::create(4, consistency, InitialParity::Right);
        let array = members.open(None).expect("an array");
        let model = scribble(&array, 1, 40);
        assert_eq!(wrong_rows(&array), 0);
        array.close().expect("closed");
        for candidate in members.candidates(None) {
            assert_eq!(candidate.superblock.resync_from(), None, "{consistency:?}");
        }
        for without in (0..4).map(Some).chain([None]) {
            let array = members.copies().open(without).expect("an array");
            assert!(content(&array) == model, "{consistency:?} without {without:?}");
        }
    }
}

#[test]
fn an_old_copy_of_a_member_is_not_mixed_in_after_a_crash() {
    let mut members = Members::create(4, NewConsistency::PartialParity, InitialParity::Right);
    let array = members.open(None).expect("an array");
    array.close().expect("a clean end");
    let old = members.copies().0.swap_remove(1);
    let array = members.open(None).expect("an array");
    let model = scribble(&array, 12, 30);
    array.flush().expect("a flush");
    // The crash: the contents of memory are gone; flushed data is on the members.
    members = members.copies();
    members.0[1] = old;
    let array = members.open(None).expect("it starts without the old copy");
    assert_eq!(array.left_out().len(), 1);
    assert!(content(&array) == model);
}

/// An array at one moment: its members, and its durable content.
struct Moment {
    members: Members,
    model: Vec<u8>,
}

/// Returns an array at eight moments: clean, written, clean again, written again, clean again,
/// without a member, written without that member, and with the member rebuilt.
fn moments(consistency: NewConsistency) -> Vec<Moment> {
    let members = Members::create(4, consistency, InitialParity::Right);
    let array = members.open(None).expect("an array");
    let mut all = Vec::new();
    let mut look = |array: &OpenArray| {
        all.push(Moment { members: members.copies(), model: content(array) });
    };
    look(&array);
    for seed in 20..22 {
        scribble(&array, seed, 8);
        look(&array);
        array.array().stop().expect("clean");
        look(&array);
    }
    scribble(&array, 22, 3);
    array.array().fail(3).expect("failed");
    look(&array);
    scribble(&array, 23, 3);
    look(&array);
    let (name, device) = members.0[3].clone();
    let new = NewMember { name, device, uuid: Uuid([90; 16]) };
    let added = array.add(new).expect("added");
    array
        .array()
        .rebuild(3, added.misses.expect("all"), &mut |_| ControlFlow::Continue(()))
        .expect("rebuilt");
    look(&array);
    all
}

#[test]
fn no_member_of_an_earlier_moment_is_mixed_in() {
    for consistency in ALL {
        let moments = moments(consistency);
        let (mut refused, mut left_out) = (0, 0);
        for (at, now) in moments.iter().enumerate() {
            for (before, then) in moments[..at].iter().enumerate().rev().take(2) {
                for slot in [1, 3] {
                    let mut mixed = now.members.copies();
                    mixed.0[slot] = then.members.copies().0.swap_remove(slot);
                    let events = |m: &Members| m.candidates(None)[slot].superblock.events();
                    let name = format!("{consistency:?}, slot {slot} of moment {before} in {at}");
                    if events(&mixed) == events(&now.members) {
                        // Nothing was recorded on the member between the two moments: either
                        // nothing changed, or the member is missing at the later moment.
                        continue;
                    }
                    match mixed.open(None) {
                        Err(error) => {
                            assert!(error.to_string().contains("m"), "{name}: {error}");
                            refused += 1;
                        }
                        Ok(array) => {
                            assert!(content(&array) == now.model, "{name}");
                            left_out += array.left_out().len();
                        }
                    }
                }
            }
        }
        println!("{consistency:?}: {refused} refused, {left_out} left out");
        assert!(refused > 0 && left_out > 0);
    }
}

#[test]
fn a_member_with_the_last_events_number_but_another_time_is_an_old_copy() {
    // md can leave an old copy with the newest event count but a different update time, because md
    // decrements the count when an array becomes clean again.
    let members = Members::create(3, NewConsistency::Resync, InitialParity::Right);
    let (_, device) = &members.0[1];
    let mut old = members.candidates(None).swap_remove(1).superblock;
    old.set_time(1_000_000);
    device.write_at(4096, &old.encode()).expect("written");
    let array = members.open(None).expect("it starts without the old copy");
    assert!(matches!(array.left_out()[0].why, Outside::OldCopy), "{:?}", array.left_out());
}

#[test]
fn a_clean_member_beside_active_ones_is_an_old_copy_unless_one_change_reached_them() {
    for (time, left_out) in [(2_000_000, 0), (1_000_000, 1)] {
        let members = Members::create(4, NewConsistency::PartialParity, InitialParity::Right);
        for (candidate, (_, device)) in members.candidates(None).iter().zip(&members.0) {
            let mut superblock = candidate.superblock.clone();
            let is_behind = superblock.role() == Role::Active(2);
            superblock.set_events(if is_behind { 20 } else { 21 });
            superblock.set_time(if is_behind { time } else { 2_000_000 });
            superblock.set_resync_from((!is_behind).then_some(0));
            device.write_at(4096, &superblock.encode()).expect("written");
        }
        let array = members.open(None).expect("an array");
        assert_eq!(array.left_out().len(), left_out, "{:?}", array.left_out());
    }
}

#[test]
fn a_member_without_bits_that_the_others_have_missed_data() {
    // If md has written an array, a crash can leave the array in the following state. When the
    // array became active, md counted one event. One member is an old copy from before this event.
    let consistency = NewConsistency::Bitmap(Some(64 << 10));
    let mut members = Members::create(4, consistency, InitialParity::Right);
    members.open(None).expect("an array").close().expect("clean");
    let old = members.copies().0.swap_remove(2);
    let array = members.open(None).expect("an array");
    scribble(&array, 13, 5);
    members = members.copies();
    members.0[2] = old;
    let newest = members.candidates(None)[0].superblock.events();
    let mut superblock = members.candidates(None)[2].superblock.clone();
    superblock.set_events(newest - 1);
    let (_, device) = &members.0[2];
    device.write_at(4096, &superblock.encode()).expect("written");
    let bitmap = superblock.bitmap(device.len()).expect("a bitmap").offset;
    device.write_at(bitmap + 24, &(newest - 1).to_le_bytes()).expect("written");
    match members.open(None) {
        Err(AssembleError::DirtyAndDegraded { slot: 2, left_out, .. }) => {
            assert!(matches!(left_out[0].why, Outside::Behind), "{left_out:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_event_count_at_its_limit_is_refused() {
    let members = Members::create(3, NewConsistency::Resync, InitialParity::Right);
    for (candidate, (_, device)) in members.candidates(None).iter().zip(&members.0) {
        let mut superblock = candidate.superblock.clone();
        superblock.set_events(u64::MAX);
        device.write_at(4096, &superblock.encode()).expect("written");
    }
    let error = members.open(None).expect_err("refused");
    assert!(
        matches!(error, AssembleError::Member { fault: MemberFault::NoMoreEvents { .. }, .. }),
        "{error}"
    );
}

#[test]
fn a_degraded_array_whose_logs_were_damaged_is_refused_unless_that_is_accepted() {
    for (damaged, starts) in [(vec![0], true), (vec![0, 1], false), (vec![0, 1, 3], false)] {
        let members = Members::create(4, NewConsistency::PartialParity, InitialParity::Right);
        let array = members.open(None).expect("an array");
        scribble(&array, 14, 5);
        let members = members.copies();
        for slot in &damaged {
            let log = members.candidates(None)[*slot].superblock.ppl().expect("a log");
            let (_, device) = &members.0[*slot];
            device.write_at(log.offset + 700, &[0x5a; 64]).expect("damage");
        }
        // With all members the array starts, and parity is recomputed.
        let whole = members.copies();
        let array = whole.open(None).expect("an array");
        assert!(array.array().status().unsynced_rows > 0);
        // Until parity is recomputed, the array does not start without a member, even after another
        // crash.
        array.array().fail(2).expect("one may be missing");
        match whole.copies().open(Some(2)).expect_err("parity is in doubt") {
            AssembleError::DirtyAndDegraded { slot: 2, logs, .. } => assert!(logs.is_empty()),
            other => panic!("{other}"),
        }
        match members.open(Some(2)) {
            Ok(_) => assert!(starts, "{damaged:?}"),
            Err(AssembleError::DirtyAndDegraded { slot: 2, logs, .. }) => {
                assert!(!starts && logs == damaged, "{damaged:?}");
            }
            Err(other) => panic!("{other}"),
        }
        let accept = ArrayOptions {
            dirty_and_degraded: DirtyAndDegraded::Accept,
            ..ArrayOptions::new(Access::ReadWrite)
        };
        OpenArray::assemble(members.candidates(Some(2)), 1, accept).expect("accepted");
    }
}

#[test]
fn an_array_in_use_is_marked_active_on_every_member() {
    let members = Members::create(3, NewConsistency::Resync, InitialParity::Right);
    let array = members.open(None).expect("an array");
    let before = members.candidates(None)[0].superblock.events();
    array.write_at(5000, b"x").expect("a write");
    for candidate in members.candidates(None) {
        assert_eq!(candidate.superblock.resync_from(), Some(0));
        // The first event announces the change, the second makes it.
        assert_eq!(candidate.superblock.events(), before + 2);
    }
}

#[test]
fn an_array_not_recorded_clean_on_all_members_is_recorded_active_before_the_next_write() {
    // Each change of the metadata is written twice. In one run the first of these writes fails on a
    // member that the array needs, in the other run the second.
    for nth in 0..2 {
        let mut members = Members::create(3, NewConsistency::Resync, InitialParity::Right);
        let hook = Arc::new(HookDevice::new(members.0[0].1.clone()));
        members.0[0].1 = hook.clone();
        let array = members.open(Some(1)).expect("an array");
        scribble(&array, 20, 3);
        hook.on(Kind::WriteDurable, nth, || Outcome::Failed);
        array.array().stop().expect_err("it is not clean");
        array.write_at(5000, b"another").expect("a write");
        for candidate in members.copies().candidates(Some(1)) {
            assert_eq!(candidate.superblock.resync_from(), Some(0), "failure {nth}");
        }
        array.array().stop().expect("it is clean now");
        for candidate in members.copies().candidates(Some(1)) {
            assert_eq!(candidate.superblock.resync_from(), None, "failure {nth}");
        }
        // After another write, the first stop fails. A second stop must succeed, although no write
        // comes between the two stops.
        array.write_at(5000, b"a third").expect("a write");
        hook.on(Kind::WriteDurable, nth, || Outcome::Failed);
        array.array().stop().expect_err("it is not clean");
        array.array().stop().expect("it is clean now");
        for candidate in members.copies().candidates(Some(1)) {
            assert_eq!(candidate.superblock.resync_from(), None, "failure {nth}");
        }
    }
}

#[test]
fn members_that_failed_together_are_not_removed_one_by_one() {
    let mut members = Members::create(4, NewConsistency::Resync, InitialParity::Right);
    let hooks = [0, 1].map(|slot: usize| {
        let hook = Arc::new(HookDevice::new(members.0[slot].1.clone()));
        members.0[slot].1 = hook.clone();
        hook
    });
    let array = members.open(None).expect("an array");
    scribble(&array, 25, 3);
    hooks.iter().for_each(|hook| hook.on(Kind::WriteDurable, 0, || Outcome::Failed));
    array.array().stop().expect_err("two members cannot record it");
    assert_eq!(array.array().status().members, [Standing::InSync; 4]);
    array.write_at(5000, b"another").expect("a write");
    let model = content(&array);
    // The superblocks record the same state as the array has in memory.
    array.array().stop().expect("it is clean");
    let copies = members.copies();
    let array = copies.open(None).expect("an array");
    assert_eq!((array.left_out(), array.array().degraded().is_empty()), (&[][..], true));
    assert!(content(&array) == model);
}

/// Puts a hook on the member in `slot`.
fn hook(members: &mut Members, slot: usize) -> Arc<HookDevice> {
    let hook = Arc::new(HookDevice::new(members.0[slot].1.clone()));
    members.0[slot].1 = hook.clone();
    hook
}

/// Opens copies of the members. An array without a log is opened even if a member is missing.
fn open_after_crash(members: &Members) -> OpenArray {
    let options = ArrayOptions {
        upkeep: Upkeep::Caller,
        dirty_and_degraded: DirtyAndDegraded::Accept,
        ..ArrayOptions::new(Access::ReadWrite)
    };
    let copies = members.copies();
    OpenArray::assemble(copies.candidates(None), 0, options).expect("one may be missing")
}

#[test]
fn a_member_that_failed_before_a_change_could_not_be_recorded_is_not_used_any_more() {
    // A change of the superblocks is written twice to each member: as an announcement, then as the
    // change itself. Member 1 fails in one of these writes. The array then records this failure,
    // which takes two more writes, and member 3 fails in one of them. `first` is the number of
    // writes to member 1 before the one that fails, and `second` is the same for member 3.
    for (first, second) in [(0, 1), (0, 2), (1, 2), (1, 3)] {
        for consistency in [NewConsistency::PartialParity, NewConsistency::Resync] {
            let case = format!("{consistency:?}, writes {first} and {second}");
            let mut members = Members::create(4, consistency, InitialParity::Right);
            let hooks = [1, 3].map(|slot| hook(&mut members, slot));
            let array = members.open(None).expect("an array");
            let model = scribble(&array, 31, 10);
            hooks[0].on(Kind::WriteDurable, first, || Outcome::Failed);
            hooks[1].on(Kind::WriteDurable, second, || Outcome::Failed);
            array.array().stop().expect_err("member 3 cannot record it");
            assert!(hooks.iter().all(|hook| !hook.is_set()), "{case}");
            let status = array.array().status();
            assert_eq!((status.members[1], status.stopped), (Standing::Missing, true), "{case}");
            assert!(content(&array) == model, "{case}");
            // If the array still used member 1, these calls would succeed, and the failure of
            // member 2 would be recorded.
            array.write_at(0, &[2; 100_000]).expect_err("writes are stopped");
            array.array().fail(2).expect_err("it is needed");
            array.close().expect_err("writes are stopped");
            let array = open_after_crash(&members);
            assert_eq!(array.array().status().members[1], Standing::Missing, "{case}");
            assert!(content(&array) == model, "{case}");
        }
    }
}

#[test]
fn a_member_lost_with_a_bit_that_cannot_be_recorded_is_not_used_any_more() {
    let consistency = NewConsistency::Bitmap(Some(64 << 10));
    let mut members = Members::create(4, consistency, InitialParity::Right);
    let hooks = [1, 3].map(|slot| hook(&mut members, slot));
    let array = members.open(None).expect("an array");
    array.write_at(0, b"active").expect("a write");
    array.flush().expect("a flush");
    // The next write sets another bit of the bitmap. Member 1 cannot write this bit, and member 3
    // cannot record the failure of member 1.
    hooks[0].on(Kind::WriteDurable, 0, || Outcome::Failed);
    hooks[1].on(Kind::WriteDurable, 1, || Outcome::Failed);
    array.write_at(3 << 20, b"another bit").expect_err("member 3 cannot record it");
    let status = array.array().status();
    assert_eq!((status.members[1], status.stopped), (Standing::Missing, true));
    assert!(content(&open_after_crash(&members)).starts_with(b"active"));
}

#[test]
fn a_member_that_is_needed_is_found_however_often_a_change_fails_on_it() {
    for nth in 0..2 {
        let mut members = Members::create(4, NewConsistency::PartialParity, InitialParity::Right);
        let hook = hook(&mut members, 0);
        let array = members.open(Some(1)).expect("an array");
        let model = scribble(&array, 32, 10);
        for _ in 0..3 {
            hook.on(Kind::WriteDurable, nth, || Outcome::Failed);
            array.array().stop().expect_err("it is not clean");
            let left = members.copies().open(Some(1)).expect("no member is left out");
            assert!(content(&left) == model, "failure {nth}");
        }
        array.array().stop().expect("it is clean now");
    }
}

#[test]
fn a_second_failure_is_not_recorded_if_the_first_could_not_be() {
    // The failure of member 1 is written twice: as an announcement, then as the change itself.
    // Member 2 fails in the first or in the second of these writes.
    for nth in 0..2 {
        let mut members = Members::create(4, NewConsistency::PartialParity, InitialParity::Right);
        let hook = hook(&mut members, 2);
        let array = members.open(None).expect("an array");
        let model = scribble(&array, 33, 10);
        hook.on(Kind::WriteDurable, nth, || Outcome::Failed);
        array.array().fail(1).expect_err("member 2 cannot record it");
        let status = array.array().status();
        assert_eq!((status.members[1], status.stopped), (Standing::Missing, true), "write {nth}");
        hook.on(Kind::Read, 0, || Outcome::Failed);
        let mut got = vec![0; model.len()];
        array.read_at(0, &mut got).expect_err("member 2 is needed");
        array.array().fail(2).expect_err("it is needed");
        assert!(content(&array) == model, "write {nth}");
        array.close().expect_err("writes are stopped");
        let array = members.copies().open(None).expect("member 2 is not recorded as failed");
        assert_eq!(array.array().status().members[2], Standing::InSync, "write {nth}");
        assert!(content(&array) == model, "write {nth}");
    }
}

#[test]
fn no_failure_is_recorded_once_writes_are_stopped() {
    let mut members = Members::create(4, NewConsistency::PartialParity, InitialParity::Right);
    let hooks = [0, 1].map(|slot| hook(&mut members, slot));
    let array = members.open(None).expect("an array");
    let model = scribble(&array, 34, 10);
    array.array().stop().expect("clean");
    hooks.iter().for_each(|hook| hook.on(Kind::WriteDurable, 0, || Outcome::Failed));
    array.write_at(0, b"active").expect_err("two members cannot record it");
    let recorded = || members.candidates(None).into_iter().map(|c| c.superblock.encode());
    let before: Vec<_> = recorded().collect();
    array.array().fail(3).expect_err("writes are stopped");
    hooks[1].on(Kind::Read, 0, || Outcome::Failed);
    assert!(content(&array) == model, "it is computed without member 1");
    assert_eq!(array.array().status().members[1], Standing::InSync, "one read fails no member");
    array.forget_failed().expect_err("writes are stopped");
    let (name, device) = ram("new");
    let new = NewMember { name, device, uuid: Uuid([9; 16]) };
    array.add(new).expect_err("writes are stopped");
    // The next start needs the member, whose failure is not recorded: it is not overwritten.
    let former = || {
        let (name, device) = members.0[1].clone();
        NewMember { name, device, uuid: Uuid([9; 16]) }
    };
    array.add_spare(former()).expect_err("writes are stopped");
    let replaced = array.replace(2, former(), &mut |_| ControlFlow::Continue(()));
    replaced.expect_err("writes are stopped");
    assert!(recorded().eq(before), "nothing is recorded");
    drop(array);
    let array = members.open(None).expect("an array");
    assert!(array.array().degraded().is_empty());
    assert!(content(&array) == model);
}

#[test]
fn an_operation_without_a_member_whose_failure_is_not_recorded_is_an_error() {
    for kind in [Kind::Write, Kind::Flush] {
        let mut members = Members::create(4, NewConsistency::Resync, InitialParity::Right);
        let hooks = [0, 2].map(|slot| hook(&mut members, slot));
        let array = Arc::new(members.open(None).expect("an array"));
        scribble(&array, 35, 3);
        // While the operation runs on member 0, member 1 fails, and member 2 cannot record this
        // failure. The operation goes on without member 1.
        let (fails, other) = (array.clone(), hooks[1].clone());
        hooks[0].on(kind, 0, move || {
            other.on(Kind::WriteDurable, 0, || Outcome::Failed);
            fails.array().fail(1).expect_err("member 2 cannot record it");
            Outcome::Done
        });
        let row = vec![7; array.row_len() as usize];
        match kind {
            Kind::Write => array.write_at(0, &row).expect_err("member 1 misses it"),
            _ => array.flush().expect_err("member 1 is not flushed"),
        };
        assert!(hooks.iter().all(|hook| !hook.is_set()));
        assert_eq!(array.array().status().members[1], Standing::Missing);
    }
}

#[test]
fn parity_of_members_with_old_contents_is_corrected() {
    for consistency in ALL {
        let members: Vec<_> = (0..4).map(|slot| ram(&format!("m{slot}"))).collect();
        for (slot, (_, device)) in members.iter().enumerate() {
            device.write_at(0, &vec![slot as u8 * 37 + 1; LEN as usize]).expect("rubbish");
        }
        let options = CreateOptions {
            set: Uuid([7; 16]),
            devices: (0..4).map(|slot| Uuid([slot; 16])).collect(),
            name: "test:old".into(),
            layout: Layout::RightAsymmetric,
            chunk: 64 << 10,
            consistency,
            size: None,
            parity: InitialParity::Unknown,
            missing: None,
        };
        create(&members, &options).expect("an array");
        let members = Members(members);
        let array = members.open(None).expect("an array");
        let go_on = &mut |_| ControlFlow::Continue(());
        for (slot, standing) in array.array().status().members.iter().enumerate() {
            if matches!(standing, Standing::Rebuilding { .. }) {
                array.array().rebuild(slot, Rebuild::Whole, go_on).expect("rebuilt");
            }
        }
        array.array().resync(go_on).expect("in step");
        assert_eq!(wrong_rows(&array), 0, "{consistency:?}");
        let model = content(&array);
        array.close().expect("closed");
        let array = members.open(Some(1)).expect("an array");
        assert!(content(&array) == model, "{consistency:?}");
    }
}

#[test]
fn a_member_lost_before_the_resync_is_computed_only_if_that_is_accepted() {
    for consistency in [NewConsistency::Bitmap(Some(64 << 10)), NewConsistency::Resync] {
        let members = Members::create(3, consistency, InitialParity::Unknown);
        let array = members.open(None).expect("an array");
        let model = scribble(&array, 36, 10);
        assert!(array.array().status().unsynced_rows > 0);
        let shape = *array.array().geometry();
        // A row in which nothing was written.
        let unused = |row: &[u8]| row.iter().all(|byte| *byte == 0);
        let row = model.chunks(shape.row_len() as usize).position(unused).expect("a row") as u64;
        let lost = shape.data_slot(row, 0);
        array.array().fail(lost).expect("one may be missing");
        let mut got = [0; 4096];
        array.read_at(row * shape.row_len(), &mut got).expect_err("its parity may be wrong");
        let (name, device) = ram("new");
        let new = NewMember { name, device, uuid: Uuid([9; 16]) };
        let added = array.add(new).expect("added");
        let go_on = &mut |_| ControlFlow::Continue(());
        array.array().rebuild(lost, Rebuild::Whole, go_on).expect_err("the data is unknown");
        assert_ne!(array.array().status().members[added.slot], Standing::InSync);
        array.close().expect("closed");
        match members.copies().open(Some(lost)).expect_err("it is not clean") {
            AssembleError::DirtyAndDegraded { slot, .. } => assert_eq!(slot, lost),
            other => panic!("{other}"),
        }
        // `open_after_crash` makes the array trust all parity. In this test all parity is right:
        // the members had zeros at first, and a write to a row whose parity is in doubt computes
        // the parity from the data.
        let array = open_after_crash(&members);
        assert_eq!(array.array().status().unsynced_rows, 0);
        assert!(content(&array) == model, "{consistency:?}");
    }
}

#[test]
fn a_crash_before_a_resync_is_done_leaves_the_rest_of_it_to_do() {
    for consistency in [NewConsistency::PartialParity, NewConsistency::Resync] {
        let members = Members::create(4, consistency, InitialParity::Right);
        // The state that md leaves when it is stopped during its first resync: parity is right in
        // the first three rows.
        for candidate in members.candidates(None) {
            let (mut superblock, device) = (candidate.superblock, candidate.device);
            let (data, from) = (superblock.data().offset, 3 * (32 << 10));
            let rubbish = vec![superblock.number() as u8 * 37 + 1; 1 << 20];
            device.write_at(data + from, &rubbish).expect("rubbish");
            superblock.set_resync_from(Some(from / 512));
            device.write_at(SUPERBLOCK_OFFSET, &superblock.encode()).expect("a superblock");
        }
        let array = members.open(None).expect("an array");
        let model = scribble(&array, 19, 3);
        array.flush().expect("flushed");
        let copies = members.copies();
        let array = copies.open(None).expect("an array");
        array.array().resync(&mut |_| ControlFlow::Continue(())).expect("in step");
        assert_eq!(wrong_rows(&array), 0, "{consistency:?}");
        assert!(content(&array) == model, "{consistency:?}");
    }
}

#[test]
fn a_failed_member_is_known_to_the_others_and_rebuilt_on_another_device() {
    for consistency in ALL {
        let mut members = Members::create(4, consistency, InitialParity::Right);
        let array = members.open(None).expect("an array");
        scribble(&array, 2, 10);
        array.array().fail(2).expect("failed");
        let model = scribble(&array, 3, 20);
        array.close().expect("closed");
        let roles: Vec<_> = [0, 1, 3]
            .iter()
            .map(|slot| members.candidates(None)[*slot].superblock.roles())
            .collect();
        assert!(roles.iter().all(|roles| roles[2] == Role::Faulty), "{roles:?}");
        // The member in slot 2 returns after the other members recorded its failure, so it is left
        // out.
        let array = members.open(None).expect("an array");
        assert_eq!(array.left_out().len(), 1, "{consistency:?}");
        let (name, device) = ram("new");
        let new = NewMember { name: name.clone(), device: device.clone(), uuid: Uuid([99; 16]) };
        assert_eq!(array.add(new).expect("added"), Added { slot: 2, misses: Some(Rebuild::Whole) });
        let seen = Candidate::read(&name, device.clone()).expect("a member").superblock;
        assert_eq!((seen.role(), seen.recovery()), (Role::Active(2), Recovery::Below(0)));
        // The rebuild stops halfway, and resumes at the recorded row when the array is opened
        // again.
        let mut rows = 0;
        let mut half = |_| {
            rows += 1;
            if rows > 20 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        array.array().rebuild(2, Rebuild::Whole, &mut half).expect("half of it");
        array.close().expect("closed");
        members.0[2] = (name, device);
        let array = members.open(None).expect("an array");
        assert!(matches!(array.array().status().members[2], Standing::Rebuilding { row: 21 }));
        array
            .array()
            .rebuild(2, Rebuild::Whole, &mut |_| ControlFlow::Continue(()))
            .expect("rebuilt");
        assert_eq!(wrong_rows(&array), 0, "{consistency:?}");
        assert!(content(&array) == model);
        array.close().expect("closed");
        let array = members.open(Some(0)).expect("an array");
        assert!(content(&array) == model, "{consistency:?}");
    }
}

#[test]
fn a_member_that_was_away_is_caught_up_from_the_bitmap() {
    let consistency = NewConsistency::Bitmap(Some(64 << 10));
    let members = Members::create(4, consistency, InitialParity::Right);
    let array = members.open(None).expect("an array");
    scribble(&array, 4, 20);
    array.close().expect("closed");
    // The array is written while member 1 is missing.
    let array = members.open(Some(1)).expect("an array");
    array.write_at(100_000, b"while it was away").expect("a write");
    let model = content(&array);
    array.close().expect("closed");
    let array = members.open(Some(1)).expect("an array");
    let (name, device) = members.0[1].clone();
    let new = NewMember { name, device, uuid: Uuid([50; 16]) };
    let added = array.add(new).expect("added");
    assert_eq!(added, Added { slot: 1, misses: Some(Rebuild::Intended) });
    let before = array.array().statistics().data_writes;
    array
        .array()
        .rebuild(1, added.misses.expect("some"), &mut |_| ControlFlow::Continue(()))
        .expect("caught up");
    let rows = array.array().statistics().data_writes - before;
    assert!((1..8).contains(&rows), "{rows} rows were written");
    assert_eq!(wrong_rows(&array), 0);
    array.close().expect("closed");
    let array = members.open(Some(2)).expect("an array");
    assert!(array.left_out().is_empty());
    assert!(content(&array) == model);
}

#[test]
fn a_member_that_missed_nothing_comes_back_without_being_rebuilt() {
    for consistency in ALL {
        let members = Members::create(4, consistency, InitialParity::Right);
        let array = members.open(None).expect("an array");
        let model = scribble(&array, 31, 20);
        array.close().expect("closed");
        let again = |array: &OpenArray| {
            let (name, device) = members.0[1].clone();
            array.add(NewMember { name, device, uuid: Uuid([9; 16]) }).expect("added")
        };
        // Nothing is written while member 1 is missing.
        let array = members.open(Some(1)).expect("degraded");
        assert!(content(&array) == model);
        assert_eq!(again(&array), Added { slot: 1, misses: None }, "{consistency:?}");
        assert_eq!(array.array().status().members[1], Standing::InSync);
        assert_eq!(wrong_rows(&array), 0);
        array.write_at(5000, &[0x5c; 100_000]).expect("a write");
        array.close().expect("closed");
        // The array uses the returned device as a member, so it can run without member 2.
        let array = members.open(Some(2)).expect("degraded");
        let mut bytes = vec![0; 100_000];
        array.read_at(5000, &mut bytes).expect("a read");
        assert!(bytes.iter().all(|byte| *byte == 0x5c));
        drop(array);
        // After one write without the device, the device is outdated.
        let array = members.open(Some(1)).expect("degraded");
        array.write_at(70_000, &[0x5d; 100]).expect("a write");
        assert_ne!(again(&array).misses, None, "{consistency:?}");
        drop(array);
    }
}

#[test]
fn a_member_that_missed_only_what_is_written_while_it_is_added_is_rebuilt() {
    let members = Members::create(4, NewConsistency::PartialParity, InitialParity::Right);
    members.open(None).expect("an array").close().expect("closed");
    let array = Arc::new(members.open(Some(1)).expect("degraded"));
    let (name, device) = members.0[1].clone();
    let hook = Arc::new(HookDevice::new(device));
    // `add` writes the new device's log and bad-block log, and flushes them, before it gives the
    // slot to the device. The array is written during this flush.
    let writer = array.clone();
    hook.on(Kind::Flush, 0, move || {
        writer.write_at(0, &[0x11; 5000]).expect("a write");
        Outcome::Done
    });
    let new = NewMember { name, device: hook.clone(), uuid: Uuid([9; 16]) };
    let added = array.add(new).expect("added");
    assert!(!hook.is_set());
    assert_eq!(added, Added { slot: 1, misses: Some(Rebuild::Whole) });
    array.array().rebuild(1, Rebuild::Whole, &mut |_| ControlFlow::Continue(())).expect("rebuilt");
    assert_eq!(wrong_rows(&array), 0);
}

#[test]
fn a_member_absent_for_longer_than_the_bitmap_covers_is_rebuilt() {
    let consistency = NewConsistency::Bitmap(Some(64 << 10));
    let mut members = Members::create(4, consistency, InitialParity::Right);
    let old = members.copies();
    let array = members.open(None).expect("an array");
    scribble(&array, 5, 20);
    array.close().expect("closed");
    // By now the bits that the writes had set are cleared, so nothing shows which writes member 3
    // missed.
    members.open(None).expect("an array").close().expect("closed");
    let array = members.open(Some(3)).expect("an array");
    let (name, device) = old.0[3].clone();
    members.0[3] = (name.clone(), device.clone());
    let new = NewMember { name, device, uuid: Uuid([51; 16]) };
    assert_eq!(array.add(new).expect("added"), Added { slot: 3, misses: Some(Rebuild::Whole) });
}

/// Two histories of an array that part at a snapshot. `later` makes the writes of the first one, of
/// which only member 2 is kept; `now` those of the second one, which lacks member 2. Returns the
/// rows that are to be rebuilt when the member is added.
fn joined(later: impl Fn(&Members), now: impl Fn(&Members)) -> Option<Rebuild> {
    let members = Members::create(3, NewConsistency::Bitmap(Some(64 << 10)), InitialParity::Right);
    let array = members.open(None).expect("an array");
    scribble(&array, 40, 20);
    array.close().expect("closed");
    let mut snapshot = members.copies();
    later(&members);
    now(&snapshot);
    snapshot.0[2] = members.0[2].clone();
    let array = snapshot.open(Some(2)).expect("an array");
    let model = content(&array);
    let (name, device) = snapshot.0[2].clone();
    let added = array.add(NewMember { name, device, uuid: Uuid([52; 16]) }).expect("added");
    if let Some(misses) = added.misses {
        array.array().rebuild(2, misses, &mut |_| ControlFlow::Continue(())).expect("rebuilt");
    }
    assert_eq!(wrong_rows(&array), 0);
    assert!(content(&array) == model);
    array.close().expect("closed");
    assert!(content(&snapshot.open(Some(0)).expect("an array")) == model);
    added.misses
}

/// Opens and closes the array several times, with a write each time.
fn lives(members: &Members, without: Option<usize>, count: u8) {
    for life in 0..count {
        let array = members.open(without).expect("an array");
        array.write_at(u64::from(life) * 300_000, &[life + 1; 70_000]).expect("a write");
        array.close().expect("closed");
    }
}

#[test]
fn a_member_of_another_history_is_rebuilt_whatever_its_counts_are() {
    for (later, now) in [(1, 1), (5, 1), (1, 5), (0, 5)] {
        let misses = joined(|m| lives(m, None, later), |m| lives(m, Some(2), now));
        let expected = if later == 0 { Rebuild::Intended } else { Rebuild::Whole };
        assert_eq!(misses, Some(expected), "{later} lives, and {now} without it");
    }
    // The member has neither more events nor more bits than the others: only its data is wrong.
    for at in [1 << 20, u64::MAX] {
        let once = |members: &Members| {
            let array = members.open(None).expect("an array");
            let at = at.min(array.len() - 512);
            let place = array.array().geometry().place(at);
            let slot = array.array().geometry().data_slot(place.row, place.index);
            let offset = members.candidates(None)[slot].superblock.data().offset;
            let row = offset + place.row * array.array().geometry().chunk();
            members.0[2].1.write_at(row, &[0xee; 512]).expect("other data");
        };
        let misses = joined(once, |members| lives(members, Some(2), 1));
        assert_eq!(misses, Some(Rebuild::Whole), "byte {at}");
    }
}

#[test]
fn a_host_without_space_stops_writes_and_fails_no_member() {
    for consistency in ALL {
        for (kind, before) in
            [(Kind::Write, 0), (Kind::Write, 3), (Kind::WriteDurable, 0), (Kind::WriteDurable, 1)]
        {
            let case = format!("{consistency:?}, {kind:?} {before}");
            let mut members = Members::create(4, consistency, InitialParity::Right);
            let hooks = [1, 2].map(|slot| hook(&mut members, slot));
            let array = members.open(None).expect("an array");
            let model = scribble(&array, 41, 10);
            array.array().stop().expect("clean");
            hooks.iter().for_each(|hook| hook.on(kind, before, || Outcome::Full));
            let mut rng = fastrand::Rng::with_seed(42);
            let failed = (0..40).any(|_| {
                let at = rng.u64(..array.len() - 4096) / 4096 * 4096;
                // The same bytes are written again, so that the model stays right.
                array.write_at(at, &model[at as usize..][..4096]).is_err()
            });
            assert!(failed || kind == Kind::WriteDurable, "{case}");
            let status = array.array().status();
            assert_eq!(status.members, [Standing::InSync; 4], "{case}");
            assert!(content(&array) == model, "{case}");
            hooks.iter().for_each(|hook| hook.clear());
            let array = open_after_crash(&members);
            assert_eq!(array.left_out(), [], "{case}");
            array.array().resync(&mut |_| ControlFlow::Continue(())).expect("parity");
            assert!(content(&array) == model && wrong_rows(&array) == 0, "{case}");
        }
    }
}

#[test]
fn a_member_is_replaced_without_the_array_missing_one() {
    for consistency in ALL {
        let mut members = Members::create(3, consistency, InitialParity::Right);
        let array = members.open(None).expect("an array");
        let model = scribble(&array, 6, 20);
        let (name, device) = ram("new");
        let new = NewMember { name: name.clone(), device: device.clone(), uuid: Uuid([9; 16]) };
        array.replace(1, new, &mut |_| ControlFlow::Continue(())).expect("replaced");
        array.close().expect("closed");
        let old = std::mem::replace(&mut members.0[1], (name, device));
        for without in [None, Some(0), Some(2)] {
            let array = members.copies().open(without).expect("an array");
            assert!(content(&array) == model, "{consistency:?} without {without:?}");
            assert_eq!(array.left_out(), []);
        }
        // The old member is not a member any more.
        members.0[1] = old;
        assert_eq!(members.open(None).expect("an array").left_out().len(), 1);
    }
}

#[test]
fn a_member_that_was_replaced_can_fail_without_harm_to_the_new_one() {
    let mut members = Members::create(3, NewConsistency::PartialParity, InitialParity::Right);
    let hook = Arc::new(HookDevice::new(members.0[1].1.clone()));
    members.0[1].1 = hook.clone();
    let array = members.open(None).expect("an array");
    let model = scribble(&array, 7, 20);
    let (name, device) = ram("new");
    let new = NewMember { name: name.clone(), device: device.clone(), uuid: Uuid([9; 16]) };
    array.replace(1, new, &mut |_| ControlFlow::Continue(())).expect("replaced");
    hook.on(Kind::Flush, 0, || Outcome::Failed);
    array.close().expect("closed");
    members.0[1] = (name, device);
    let array = members.open(None).expect("an array");
    assert_eq!((array.left_out(), array.array().degraded().is_empty()), (&[][..], true));
    assert!(content(&array) == model);
}

#[test]
fn a_member_that_fails_when_its_replacement_is_recorded_is_an_error() {
    for nth in 0..2 {
        let members = Members::create(3, NewConsistency::Resync, InitialParity::Right);
        let array = members.open(None).expect("an array");
        let model = scribble(&array, 17, 20);
        let (name, below) = ram("new");
        let hook = Arc::new(HookDevice::new(below));
        let new = NewMember { name, device: hook.clone(), uuid: Uuid([9; 16]) };
        let copied = &mut |_| {
            hook.on(Kind::WriteDurable, nth, || Outcome::Failed);
            ControlFlow::Continue(())
        };
        array.replace(1, new, copied).expect_err("it has failed");
        array.close().expect("closed");
        let array = members.open(Some(1)).expect("the others do");
        assert!(content(&array) == model);
    }
}

#[test]
fn a_new_member_gets_the_bits_that_are_set_while_it_is_prepared() {
    let consistency = NewConsistency::Bitmap(Some(64 << 10));
    let mut members = Members::create(4, consistency, InitialParity::Right);
    let array = Arc::new(members.open(Some(2)).expect("an array"));
    let (name, device) = ram("new");
    let hook = Arc::new(HookDevice::new(device.clone()));
    let written = array.clone();
    hook.on(Kind::Flush, 0, move || {
        written.write_at(3 << 20, b"meanwhile").expect("a write");
        Outcome::Done
    });
    members.0[2] = (name.clone(), device);
    array.add(NewMember { name, device: hook, uuid: Uuid([9; 16]) }).expect("added");
    let bits = |slot: usize| {
        let (superblock, device) = (&members.candidates(None)[slot].superblock, &members.0[slot].1);
        let mut bits = [0; 512];
        let bitmap = superblock.bitmap(device.len()).expect("a bitmap");
        device.read_at(bitmap.offset + 256, &mut bits).expect("the bits");
        bits
    };
    assert!(bits(0).iter().any(|byte| *byte != 0), "the write set one");
    assert_eq!(bits(2), bits(0));
}

#[test]
fn a_crash_during_a_rebuild_is_recovered_by_the_new_members_log_too() {
    let mut members = Members::create(4, NewConsistency::PartialParity, InitialParity::Right);
    let array = members.open(Some(1)).expect("an array");
    let mut model = scribble(&array, 18, 20);
    let (name, device) = ram("new");
    let hook = Arc::new(HookDevice::new(device.clone()));
    members.0[1] = (name.clone(), device);
    array.add(NewMember { name, device: hook.clone(), uuid: Uuid([9; 16]) }).expect("added");
    let on = &mut |progress: Progress| match progress.done * 2 < progress.total {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    };
    let ended = array.array().rebuild(1, Rebuild::Whole, on).expect("half of it");
    assert_eq!(ended, Ended::Stopped);
    // Finds a row whose parity is on member 1. The crash comes after a part of the row's data is
    // written, and before the parity is written.
    let shape = *array.array().geometry();
    let row = (0..4).find(|row| shape.parity_slot(*row) == 1).expect("one in four");
    let at = (row * shape.row_len()) as usize;
    let crashed = Arc::new(Mutex::new(None));
    let (left, live) = (crashed.clone(), Members(members.0.clone()));
    hook.on(Kind::Write, 0, move || {
        *left.lock().unwrap() = Some(live.copies());
        Outcome::Done
    });
    model[at..at + 5000].fill(0xc3);
    array.write_at(at as u64, &model[at..at + 5000]).expect("a write");
    let left: Members = crashed.lock().unwrap().take().expect("it wrote parity");
    let array = left.open(None).expect("it has a log");
    assert_eq!(array.array().status().members[1], Standing::Rebuilding { row: shape.rows() / 2 });
    // Below, the data of chunk 2, which was not written, is computed from the row's parity.
    array.array().rebuild(1, Rebuild::Whole, &mut |_| ControlFlow::Continue(())).expect("rebuilt");
    assert_eq!(wrong_rows(&array), 0);
    array.array().fail(shape.data_slot(row, 2)).expect("failed");
    assert!(content(&array) == model);
}

#[test]
fn a_member_that_fails_when_its_slot_is_recorded_does_not_get_it() {
    let members = Members::create(3, NewConsistency::Resync, InitialParity::Right);
    let array = members.open(Some(1)).expect("an array");
    // The three writes to the new device: its bad-block log, the announcement that it gets the
    // slot, and the change.
    for nth in 1..=3 {
        let (name, below) = ram("bad");
        let fault = Fault { operation: Operation::Write, nth, duration: Duration::FromThenOn };
        let device = Arc::new(FaultyDevice::new(below, Some(fault)));
        array.add(NewMember { name, device, uuid: Uuid([9; 16]) }).expect_err("it fails");
        assert_eq!(array.array().status().members[1], Standing::Missing, "write {nth}");
        let known = array.metadata().members();
        assert!(known.iter().all(|member| member.slot != Some(1)), "write {nth}");
    }
    let (name, device) = ram("good");
    array.add(NewMember { name, device, uuid: Uuid([8; 16]) }).expect("a place for another");
    let on = &mut |_| ControlFlow::Continue(());
    array.array().rebuild(1, Rebuild::Whole, on).expect("rebuilt");
}

#[test]
fn a_member_that_fails_during_assembly_is_left_out() {
    let members = Members::create(4, NewConsistency::PartialParity, InitialParity::Right);
    let array = members.open(None).expect("an array");
    let model = scribble(&array, 15, 20);
    // After the crash the log is applied. Then all superblocks must record that parity is right.
    // The write of this record fails on member 1.
    let mut members = members.copies();
    let hook = Arc::new(HookDevice::new(members.0[1].1.clone()));
    hook.on(Kind::WriteDurable, 0, || Outcome::Failed);
    members.0[1].1 = hook;
    let array = members.open(None).expect("one may be missing");
    assert!(array.log().expect("a log").entries > 0);
    assert_eq!(array.array().status().members[1], Standing::Missing);
    assert!(content(&array) == model);
}

#[test]
fn a_member_whose_log_cannot_be_emptied_is_left_out() {
    let mut members = Members::create(4, NewConsistency::PartialParity, InitialParity::Right);
    let array = members.open(None).expect("an array");
    let model = scribble(&array, 23, 20);
    array.close().expect("closed");
    let hook = Arc::new(HookDevice::new(members.0[2].1.clone()));
    hook.on(Kind::Write, 0, || Outcome::Failed);
    members.0[2].1 = hook.clone();
    let array = members.open(None).expect("one may be missing");
    assert_eq!(array.array().status().members[2], Standing::Missing);
    assert!(content(&array) == model);
    drop(array);
    // The member's content is outdated now, and the other members record that.
    assert_eq!(members.open(None).expect("an array").left_out().len(), 1);
    // If another member is missing already, opening fails, and the error names the member that
    // cannot be written.
    let members = members.copies();
    let (name, below) = members.0[3].clone();
    let candidates = |hook: &Arc<HookDevice>| {
        let mut all = members.candidates(Some(2));
        all[2].device = hook.clone();
        all
    };
    let hook = Arc::new(HookDevice::new(below));
    hook.on(Kind::Write, 0, || Outcome::Failed);
    let options = ArrayOptions { upkeep: Upkeep::Caller, ..ArrayOptions::new(Access::ReadWrite) };
    match OpenArray::assemble(candidates(&hook), 1, options).expect_err("two fail") {
        AssembleError::Member { name: named, fault: MemberFault::Device(_) } => {
            assert_eq!(named, name)
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_log_that_cannot_be_read_is_named() {
    let members = Members::create(4, NewConsistency::PartialParity, InitialParity::Right);
    let array = members.open(None).expect("an array");
    scribble(&array, 24, 20);
    for slot in 0..4 {
        let members = members.copies();
        let hook = Arc::new(HookDevice::new(members.0[slot].1.clone()));
        let mut candidates = members.candidates(None);
        candidates[slot].device = hook.clone();
        hook.on(Kind::Read, 0, || Outcome::Failed);
        let options =
            ArrayOptions { upkeep: Upkeep::Caller, ..ArrayOptions::new(Access::ReadWrite) };
        match OpenArray::assemble(candidates, 0, options).expect_err("it cannot be recovered") {
            AssembleError::Member { name, fault: MemberFault::Device(_) } => {
                assert_eq!(name, members.0[slot].0)
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn numbers_of_failed_devices_are_free_once_they_are_forgotten() {
    let members = Members::create(3, NewConsistency::Resync, InitialParity::Right);
    let array = members.open(None).expect("an array");
    array.array().fail(0).expect("failed");
    array.forget_failed().expect("forgotten");
    array.close().expect("closed");
    assert_eq!(members.candidates(None)[1].superblock.roles()[0], Role::Spare);
}

#[test]
fn a_small_device_cannot_become_a_member() {
    let members = Members::create(3, NewConsistency::Resync, InitialParity::Right);
    let array = members.open(Some(1)).expect("an array");
    let device = Arc::new(RamDevice::create(1 << 20).expect("memory"));
    let new = NewMember { name: "small".into(), device, uuid: Uuid([9; 16]) };
    assert!(matches!(
        array.add(new),
        Err(AssembleError::Member { fault: MemberFault::TooSmall { .. }, .. })
    ));
}

/// Opens the array as a mount does, with spares that are in `more`.
fn open_with_spares(members: &Members, more: &[Candidate]) -> OpenArray {
    let candidates = members.candidates(None).into_iter().chain(more.iter().cloned());
    OpenArray::assemble(candidates.collect(), 0, ArrayOptions::new(Access::ReadWrite))
        .expect("an array")
}

fn await_whole(array: &OpenArray) {
    let start = std::time::Instant::now();
    let is_whole = || array.array().status().members.iter().all(|m| *m == Standing::InSync);
    while !is_whole() || !matches!(array.caught_up(), Some(CatchUp::Done)) {
        assert!(start.elapsed().as_secs() < 60, "{:?}", array.array().status());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_spare_gets_the_slot_of_a_member_that_fails() {
    for consistency in ALL {
        let mut members = Members::create(3, consistency, InitialParity::Right);
        let spares: Vec<_> = ["spare", "broken", "late"].map(ram).into_iter().collect();
        let array = members.open(None).expect("an array");
        for (at, (name, device)) in (20..).zip(&spares) {
            let new =
                || NewMember { name: name.clone(), device: device.clone(), uuid: Uuid([at; 16]) };
            array.add_spare(new()).expect("a spare");
            array.add_spare(new()).expect("again");
        }
        array.close().expect("closed");
        let read = |(name, device): &(PathBuf, Arc<dyn Device>)| {
            Candidate::read(name, device.clone()).expect("a spare")
        };
        let mut candidates: Vec<_> = spares.iter().map(read).collect();
        assert!(candidates.iter().all(|spare| spare.superblock.role() == Role::Spare));
        // The second spare cannot be written, so the third gets the slot.
        let hook = HookDevice::new(spares[1].1.clone());
        hook.on(Kind::Write, 0, || Outcome::Failed);
        candidates[1] = Candidate { device: Arc::new(hook), ..candidates[1].clone() };
        let array = open_with_spares(&members, &candidates);
        let model = scribble(&array, 3, 20);
        for (slot, spare) in [(1, &spares[0]), (2, &spares[2])] {
            array.array().fail(slot).expect("failed");
            await_whole(&array);
            assert!(content(&array) == model, "{consistency:?}");
            members.0[slot] = spare.clone();
        }
        array.close().expect("closed");
        let array = members.open(None).expect("an array of the spares");
        assert_eq!(wrong_rows(&array), 0, "{consistency:?}");
        assert!(content(&array) == model);
        array.close().expect("closed");
        let array = members.open(Some(0)).expect("an array");
        assert!(content(&array) == model, "{consistency:?}");
    }
}

#[test]
fn a_spare_named_at_the_start_gets_the_empty_slot() {
    let mut members = Members::create(3, NewConsistency::PartialParity, InitialParity::Right);
    let spare = ram("spare");
    let array = members.open(None).expect("an array");
    let model = scribble(&array, 4, 20);
    let (name, device) = spare.clone();
    array.add_spare(NewMember { name, device, uuid: Uuid([20; 16]) }).expect("a spare");
    array.array().fail(0).expect("failed");
    array.close().expect("closed");
    members.0[0] = spare;
    let array = open_with_spares(&members, &[]);
    assert_eq!(array.left_out(), []);
    await_whole(&array);
    array.close().expect("closed");
    let array = members.open(Some(2)).expect("an array");
    assert!(content(&array) == model);
}

#[test]
fn a_spare_does_not_stand_for_a_member_that_only_is_not_named() {
    let members = Members::create(3, NewConsistency::PartialParity, InitialParity::Right);
    let (name, device) = ram("spare");
    let array = members.open(None).expect("an array");
    let new = NewMember { name: name.clone(), device: device.clone(), uuid: Uuid([20; 16]) };
    array.add_spare(new).expect("a spare");
    array.close().expect("closed");
    let candidates = || {
        let mut candidates = members.candidates(Some(2));
        candidates.push(Candidate::read(&name, device.clone()).expect("a spare"));
        candidates
    };
    let open =
        |absent| OpenArray::assemble(candidates(), absent, ArrayOptions::new(Access::ReadWrite));
    let refused = open(0).map(drop);
    let expected = AssembleError::Absent { given: 2, members: 3 };
    assert_eq!(refused.expect_err("one is absent").to_string(), expected.to_string());
    await_whole(&open(1).expect("said to be missing"));
}

#[test]
fn a_spare_that_was_not_named_for_a_while_is_still_one() {
    let mut members = Members::create(3, NewConsistency::PartialParity, InitialParity::Right);
    let spares = ["one", "two"].map(ram);
    for (at, (name, device)) in (20..).zip(&spares) {
        let array = members.open(None).expect("an array");
        let new = NewMember { name: name.clone(), device: device.clone(), uuid: Uuid([at; 16]) };
        array.add_spare(new).expect("a spare");
        scribble(&array, 5, 3);
        array.close().expect("closed");
    }
    // The second has the number of the first, which was not there.
    let read = |(name, device): &(PathBuf, Arc<dyn Device>)| {
        Candidate::read(name, device.clone()).expect("a spare")
    };
    let array = open_with_spares(&members, &[read(&spares[0]), read(&spares[1])]);
    let left: Vec<_> = array.left_out().iter().map(|out| &out.name).collect();
    assert_eq!(left, [&spares[1].0], "of two with one number, one is a spare");
    array.close().expect("closed");
    let named = members.candidates(Some(2)).into_iter().chain(spares.iter().map(read)).collect();
    let refused = OpenArray::assemble(named, 0, ArrayOptions::new(Access::ReadWrite)).map(drop);
    let expected = AssembleError::Absent { given: 2, members: 3 };
    assert_eq!(refused.expect_err("one is absent").to_string(), expected.to_string());
    let array = open_with_spares(&members, &[read(&spares[0])]);
    assert_eq!(array.left_out(), []);
    let model = scribble(&array, 6, 20);
    array.array().fail(1).expect("failed");
    await_whole(&array);
    array.close().expect("closed");
    members.0[1] = spares[0].clone();
    assert!(content(&members.open(Some(2)).expect("an array")) == model);
}

#[test]
fn a_spare_that_fails_when_it_is_recorded_is_no_spare() {
    // The writes of the superblock: before the change, its announcement, and the change.
    for nth in 0..3 {
        let members = Members::create(3, NewConsistency::Resync, InitialParity::Right);
        let array = members.open(None).expect("an array");
        let (name, device) = ram("spare");
        let hook = Arc::new(HookDevice::new(device));
        hook.on(Kind::WriteDurable, nth, || Outcome::Failed);
        let new = || NewMember { name: name.clone(), device: hook.clone(), uuid: Uuid([20; 16]) };
        let error = array.add_spare(new()).expect_err("it fails").to_string();
        assert!(error.contains("spare"), "{error}");
        assert!(!hook.is_set() && array.metadata().members().len() == 3, "write {nth}");
        assert!(!array.array().status().stopped);
        array.add_spare(new()).expect("it can be written again");
    }
}

#[test]
fn a_change_that_may_be_recorded_is_not_taken_for_undone() {
    // Member 1 fails when the spare is recorded, and meanwhile member 0 is lost.
    let mut members = Members::create(3, NewConsistency::Resync, InitialParity::Right);
    let hook = hook(&mut members, 1);
    let array = members.open(None).expect("an array");
    array.array().fail(0).expect("failed");
    hook.on(Kind::WriteDurable, 0, || Outcome::Failed);
    let (name, device) = ram("spare");
    let error = array.add_spare(NewMember { name, device, uuid: Uuid([20; 16]) });
    assert!(matches!(error, Err(AssembleError::Unsettled(_))), "{error:?}");
}

#[test]
fn a_spare_that_did_not_replace_a_member_is_still_one() {
    let mut members = Members::create(3, NewConsistency::PartialParity, InitialParity::Right);
    let array = members.open(None).expect("an array");
    let model = scribble(&array, 7, 20);
    let (name, device) = ram("spare");
    let spare = || NewMember { name: name.clone(), device: device.clone(), uuid: Uuid([20; 16]) };
    array.add_spare(spare()).expect("a spare");
    let stopped = array.replace(1, spare(), &mut |_| ControlFlow::Break(()));
    assert_eq!(stopped.expect("stopped"), Replaced::Stopped);
    array.close().expect("closed");
    let named = Candidate::read(&name, device.clone()).expect("a spare");
    let array = open_with_spares(&members, &[named]);
    array.array().fail(1).expect("failed");
    await_whole(&array);
    array.close().expect("closed");
    members.0[1] = (name, device);
    assert!(content(&members.open(None).expect("an array")) == model);
}

#[test]
fn a_rebuild_recorded_to_the_last_sector_is_done() {
    let members = Members::create(3, NewConsistency::PartialParity, InitialParity::Right);
    let model = scribble(&members.open(None).expect("an array"), 8, 20);
    let mut own = members.candidates(None).swap_remove(1).superblock;
    own.set_recovery(Recovery::Below(own.size()));
    members.0[1].1.write_at(SUPERBLOCK_OFFSET, &own.encode()).expect("written");
    let array = members.open(None).expect("an array");
    assert!(array.array().degraded().is_empty());
    array.array().fail(2).expect("the others are whole");
    assert!(content(&array) == model);
}

#[test]
fn a_spare_is_first_written_while_the_array_can_change() {
    for consistency in ALL {
        let members = Members::create(3, consistency, InitialParity::Right);
        let array = Arc::new(members.open(None).expect("an array"));
        let (name, device) = ram("spare");
        let hook = Arc::new(HookDevice::new(device));
        let meanwhile = array.clone();
        hook.on(Kind::WriteDurable, 0, move || {
            let fails = std::thread::spawn(move || meanwhile.array().fail(1));
            let start = std::time::Instant::now();
            while !fails.is_finished() {
                assert!(start.elapsed().as_secs() < 30, "it waits for the new device");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            fails.join().expect("a thread that ends").expect("failed");
            Outcome::Done
        });
        array.add_spare(NewMember { name, device: hook, uuid: Uuid([20; 16]) }).expect("a spare");
        assert_eq!(array.array().status().members[1], Standing::Missing);
    }
}

#[test]
fn a_spare_keeps_the_name_that_it_gets_while_it_takes_over() {
    let members = Members::create(3, NewConsistency::PartialParity, InitialParity::Right);
    let (name, device) = ram("spare");
    let array = members.open(None).expect("an array");
    let new = NewMember { name: name.clone(), device: device.clone(), uuid: Uuid([20; 16]) };
    array.add_spare(new).expect("a spare");
    array.close().expect("closed");
    let mut spare = Candidate::read(&name, device).expect("a spare");
    let hook = Arc::new(HookDevice::new(spare.device));
    spare.device = hook.clone();
    let array = Arc::new(open_with_spares(&members, &[spare]));
    let renamed = array.clone();
    hook.on(Kind::Write, 0, move || {
        renamed.metadata().rename_members(|name| Some(PathBuf::from("/there").join(name)));
        Outcome::Done
    });
    array.array().fail(1).expect("failed");
    await_whole(&array);
    assert!(!hook.is_set());
    let known = array.metadata().members();
    assert!(known.iter().all(|member| member.name.starts_with("/there")), "{known:?}");
}

#[test]
fn a_new_device_does_not_get_the_number_of_a_member_that_is_not_named() {
    let members = Members::create(3, NewConsistency::Resync, InitialParity::Right);
    members.open(None).expect("an array").close().expect("clean");
    let array = members.open(Some(1)).expect("an array");
    let (name, device) = ram("spare");
    let hook = Arc::new(HookDevice::new(device.clone()));
    // When the change is written, the device has its announcement, in which the number of the
    // member that is not named is still in slot 1.
    hook.on(Kind::WriteDurable, 2, move || {
        let announced = Candidate::read("spare".as_ref(), device).expect("a superblock");
        assert_ne!(announced.superblock.role(), Role::Active(1));
        Outcome::Done
    });
    let new = NewMember { name, device: hook.clone(), uuid: Uuid([20; 16]) };
    array.add_spare(new).expect("a spare");
    assert!(!hook.is_set());
    let numbers: Vec<_> =
        array.metadata().members().iter().map(|m| m.superblock.number()).collect();
    assert!(!numbers.contains(&1), "{numbers:?}");
}

#[test]
fn two_changes_do_not_write_the_same_device() {
    let members = Members::create(3, NewConsistency::PartialParity, InitialParity::Right);
    let array = members.open(None).expect("an array");
    let (name, device) = ram("new");
    let new = || NewMember { name: name.clone(), device: device.clone(), uuid: Uuid([9; 16]) };
    let mut refused = false;
    let mut meanwhile = |_| {
        let error = array.add_spare(new()).expect_err("it is being written");
        refused = matches!(error, AssembleError::Invalid(InvalidRequest::Claimed));
        ControlFlow::Continue(())
    };
    array.replace(1, new(), &mut meanwhile).expect("replaced");
    assert!(refused);
    assert!(matches!(array.add_spare(new()), Err(AssembleError::Invalid(InvalidRequest::Claimed))));
    assert_eq!(wrong_rows(&array), 0);
}

#[test]
fn the_array_is_resynced_and_marked_clean_in_the_background() {
    let members = Members::create(3, NewConsistency::Resync, InitialParity::Unknown);
    let options = ArrayOptions::new(Access::ReadWrite);
    let array = OpenArray::assemble(members.candidates(None), 0, options).expect("an array");
    array.write_at(77, b"written meanwhile").expect("a write");
    let start = std::time::Instant::now();
    while array.array().status().unsynced_rows > 0 || array.array().status().active {
        assert!(start.elapsed().as_secs() < 30, "{:?}", array.array().status());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(matches!(array.caught_up(), Some(CatchUp::Done)));
    // The array is not closed, so the copies are as the members would be after a power cut.
    let copies = members.copies();
    assert_eq!(copies.candidates(None)[0].superblock.resync_from(), None);
    assert_eq!(wrong_rows(&copies.open(None).expect("an array")), 0);
}

#[test]
fn a_rebuild_that_fails_in_the_background_is_told() {
    let mut members = Members::create(3, NewConsistency::Resync, InitialParity::Right);
    members.open(None).expect("an array").close().expect("clean");
    let array = members.open(Some(1)).expect("an array");
    members.0[1] = ram("new");
    let (name, device) = members.0[1].clone();
    array.add(NewMember { name, device, uuid: Uuid([9; 16]) }).expect("added");
    array.close().expect("closed");
    let new = hook(&mut members, 1);
    let candidates = members.candidates(None);
    // The first write of the rebuild fails.
    let options = ArrayOptions::new(Access::ReadWrite);
    new.on(Kind::Write, 0, || Outcome::Full);
    let array = OpenArray::assemble(candidates, 0, options).expect("an array");
    let start = std::time::Instant::now();
    while matches!(array.caught_up(), Some(CatchUp::Working)) {
        assert!(start.elapsed().as_secs() < 30, "it goes on");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(matches!(array.caught_up(), Some(CatchUp::Failed(_))), "{:?}", array.caught_up());
    // The new member keeps its slot, and the array can be written.
    array.write_at(0, b"written").expect("a write");
    assert!(matches!(array.array().status().members[1], Standing::Rebuilding { .. }));
    // The failure is told until a later change has done the work.
    array.array().rebuild(1, Rebuild::Whole, &mut |_| ControlFlow::Continue(())).expect("rebuilt");
    assert!(matches!(array.caught_up(), Some(CatchUp::Done)), "{:?}", array.caught_up());
    array.close().expect("closed");
    assert_eq!(wrong_rows(&members.open(None).expect("an array")), 0);
}
