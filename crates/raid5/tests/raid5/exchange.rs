//! Exchanges members during an operation: operations on the old member must not affect the new
//! member of the slot.

use crate::rig;
use crate::rig::hook::{HookDevice, Kind, Outcome};
use crate::rig::{Rig, content};
use lanefs_device::{Device, DeviceError};
use lanefs_lanes::sync::unscheduled::Mutex;
use lanefs_raid5::{Array, Consistency, Ended, Layout, Member, Rebuild, Scrub, Standing};
use std::ops::ControlFlow;
use std::sync::Arc;

const NEW: Standing = Standing::Rebuilding { row: 0 };

fn consistencies() -> [Consistency; 3] {
    [
        Consistency::Resync,
        Consistency::Bitmap { chunk: 32768, bits: vec![0; 2] },
        Consistency::PartialParity { signature: 7 },
    ]
}

/// An array of four members, all with hooks, and its expected content.
struct Hooked {
    rig: Rig,
    hooks: Vec<Arc<HookDevice>>,
    array: Arc<Array>,
    model: Vec<u8>,
}

impl Hooked {
    fn new(consistency: &Consistency) -> Hooked {
        let mut rig = Rig::new(Layout::LeftSymmetric, 4, 16384, 6).with(consistency.clone());
        let mut hooks = Vec::new();
        for member in &mut rig.members {
            let hook = Arc::new(HookDevice::new(member.take().unwrap()));
            *member = Some(hook.clone());
            hooks.push(hook);
        }
        let array = Arc::new(rig.start());
        let model: Vec<u8> = (0..array.len()).map(|at| (at / 512 * 37 + at) as u8).collect();
        array.write_at(0, &model).unwrap();
        array.flush().unwrap();
        Hooked { rig, hooks, array, model }
    }

    /// Fails the member in `slot` and attaches another one. This happens during an operation of
    /// this kind on the member in `trigger`, after `before` earlier operations of that kind.
    fn exchange_in(
        &mut self,
        trigger: usize,
        kind: Kind,
        before: usize,
        slot: usize,
        end: Outcome,
    ) {
        let (array, new) = (self.array.clone(), Mutex::new(Some(self.rig.replace(slot))));
        self.hooks[trigger].on(kind, before, move || {
            let new: Member = new.lock().unwrap().take().unwrap();
            array.fail(slot).unwrap();
            array.attach(slot, new).unwrap();
            end
        });
    }

    /// Makes small writes within a block and across blocks, a write of a whole row, and a durable
    /// write.
    fn write(&mut self) -> Result<(), DeviceError> {
        for (at, len) in [(100, 50), (49152 - 3000, 9000), (0, 49152)] {
            self.model[at..at + len].iter_mut().for_each(|byte| *byte ^= 0x5a);
            self.array.write_at(at as u64, &self.model[at..at + len])?;
        }
        self.model[20_000..20_100].fill(9);
        self.array.write_durable_at(20_000, &self.model[20_000..20_100])
    }

    /// Checks that the new member keeps its slot; that it can be rebuilt; and that the array then
    /// has all data.
    fn assert_kept(&self, slot: usize, case: &str) {
        assert!(self.hooks.iter().all(|hook| !hook.is_set()), "{case}: every hook has run");
        let status = self.array.status();
        assert_eq!((status.members[slot], status.stopped), (NEW, false), "{case}");
        assert!(content(&*self.array) == self.model, "{case}");
        let on = &mut |_| ControlFlow::Continue(());
        assert_eq!(self.array.rebuild(slot, Rebuild::Whole, on).unwrap(), Ended::Done, "{case}");
        assert!(content(&*self.array) == self.model, "{case}");
        assert_eq!(self.rig.wrong_rows(), [], "{case}");
        self.array.stop().unwrap();
    }
}

#[test]
fn a_member_that_is_exchanged_after_the_plan_means_another_plan_and_no_failure() {
    for consistency in consistencies() {
        let mut hooked = Hooked::new(&consistency);
        // The write covers part of a block, so the old content is read first, and then the parity.
        let shape = hooked.rig.shape;
        let (data, parity) = (shape.data_slot(0, 0), shape.parity_slot(0));
        hooked.exchange_in(data, Kind::Read, 0, parity, Outcome::Done);
        hooked.write().unwrap();
        hooked.assert_kept(parity, &format!("{consistency:?}"));
    }
}

#[test]
fn an_error_that_comes_late_does_not_touch_the_new_member() {
    let mut cases = 0;
    for consistency in consistencies() {
        for kind in [Kind::Read, Kind::Write, Kind::WriteDurable, Kind::Flush] {
            for (slot, end) in
                (0..4).flat_map(|slot| [(slot, Outcome::Failed), (slot, Outcome::Done)])
            {
                let case = format!("{consistency:?}, {kind:?} of {slot}: {end:?}");
                let mut hooked = Hooked::new(&consistency);
                hooked.exchange_in(slot, kind, 0, slot, end);
                hooked.write().expect(&case);
                hooked.array.flush().expect(&case);
                assert!(content(&*hooked.array) == hooked.model, "{case}");
                if kind == Kind::WriteDurable && hooked.hooks[slot].is_set() {
                    // The member got neither a log write nor a durable write, so it was not
                    // exchanged.
                    continue;
                }
                hooked.assert_kept(slot, &case);
                cases += 1;
            }
        }
    }
    assert!(cases > 80, "{cases}");
}

#[test]
fn rows_rebuilt_on_a_removed_member_do_not_count_for_the_new_one() {
    for consistency in consistencies() {
        // The member is exchanged while its rows are written, or during the flush before it is
        // recorded as in sync.
        for (kind, before) in [(Kind::Write, 2), (Kind::Flush, 0)] {
            for end in [Outcome::Done, Outcome::Failed] {
                let case = format!("{consistency:?}, {kind:?}: {end:?}");
                let mut hooked = Hooked::new(&consistency);
                hooked.array.fail(1).unwrap();
                let first = hooked.rig.replace(1);
                let hook = Arc::new(HookDevice::new(first.device.clone()));
                hooked.hooks[1] = hook.clone();
                hooked.array.attach(1, Member { device: hook, ..first }).unwrap();
                hooked.exchange_in(1, kind, before, 1, end);
                let on = &mut |_| ControlFlow::Continue(());
                let error = hooked.array.rebuild(1, Rebuild::Whole, on).expect_err(&case);
                println!("{case}: {error}");
                assert_eq!(hooked.rig.record.said().recovered, [], "{case}");
                hooked.assert_kept(1, &case);
            }
        }
    }
}

#[test]
fn a_member_may_be_exchanged_during_a_scrub() {
    for (kind, before, end) in [
        (Kind::Read, 1, Outcome::Done),
        (Kind::Read, 1, Outcome::Failed),
        (Kind::Write, 0, Outcome::Failed),
    ] {
        let mut hooked = Hooked::new(&Consistency::Resync);
        let slot = hooked.rig.shape.parity_slot(1);
        if kind == Kind::Write {
            // First, the parity that the repair has to correct is damaged.
            let member = hooked.rig.members[slot].as_ref().unwrap();
            member.write_at(rig::DATA_OFFSET + 16384, &[0xee; 512]).unwrap();
        }
        hooked.exchange_in(slot, kind, before, slot, end);
        let on = &mut |_| ControlFlow::Continue(());
        let (report, ended) = hooked.array.scrub(Scrub::Repair, on).unwrap();
        assert_eq!((report.rows, ended), (6, Ended::Done));
        assert!(report.skipped >= 4, "{report:?}");
        hooked.assert_kept(slot, &format!("{kind:?}: {end:?}"));
    }
}

#[test]
fn two_rebuilds_of_one_member_undo_no_write() {
    let mut hooked = Hooked::new(&Consistency::Resync);
    hooked.array.fail(2).unwrap();
    let new = hooked.rig.replace(2);
    hooked.array.attach(2, new).unwrap();
    let array = &hooked.array;
    let mut inner = Some(());
    // A second rebuild runs from start to end while the first one is under way; then a write
    // follows.
    array
        .rebuild(2, Rebuild::Whole, &mut |progress| {
            if inner.take().is_some() {
                array.rebuild(2, Rebuild::Whole, &mut |_| ControlFlow::Continue(())).unwrap();
                hooked.model.reverse();
                array.write_at(0, &hooked.model).unwrap();
            }
            assert_eq!(array.status().members[2], Standing::InSync, "{progress:?}");
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(content(&**array) == hooked.model);
    assert_eq!(hooked.rig.wrong_rows(), []);
}

#[test]
fn a_member_with_less_space_for_its_log_than_writes_count_on_is_refused() {
    let hooked = Hooked::new(&Consistency::PartialParity { signature: 7 });
    hooked.array.fail(3).unwrap();
    let mut rig = hooked.rig;
    let mut small = rig.replace(3);
    let log = small.log.as_mut().unwrap();
    log.len = 8192;
    assert!(hooked.array.attach(3, small).is_err());
    hooked.array.attach(3, rig.replace(3)).unwrap();
}
