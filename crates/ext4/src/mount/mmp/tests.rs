use super::*;
use lanefs_device::{RamDevice, WriteKind, forward};
use lanefs_lanes::sync::Weak;
use std::cell::Cell;

const BLOCK: Block = Block(3);

fn place() -> Place {
    let device = Arc::new(RamDevice::create(64 << 10).unwrap());
    Place { device, block: BLOCK, block_size: 4096, checksums: Checksums::None }
}

fn mmp(state: Use, node: &str) -> Mmp {
    let (node, device) = (node.as_bytes().to_vec(), b"vda".to_vec());
    Mmp { state, time: 1, node, device, check_interval: 0 }
}

fn put(place: &Place, mmp: &Mmp) {
    let mut bytes = vec![0; 4096];
    mmp.encode_into(&mut bytes, place.checksums).unwrap();
    place.device.write_at(place.offset(), &bytes).unwrap();
}

fn take(place: &Place, interval: u16, pause: &dyn Fn()) -> Result<Mmp, Error> {
    claim(place, &place.read()?, CheckMark::Refused, interval, pause)
}

#[test]
fn an_unmounted_file_system_is_taken_without_waiting() {
    let place = place();
    put(&place, &mmp(Use::Clean, ""));
    let mine = take(&place, 5, &|| panic!("a wait")).unwrap();
    assert!(matches!(mine.state, Use::Mounted(1..=LAST_SEQUENCE)));
    assert_eq!(place.read().unwrap(), mine);
}

#[test]
fn a_dead_mount_is_replaced_after_two_waits() {
    let place = place();
    for (interval, patience) in [(0, 11), (40, 81), (300, 360), (u16::MAX, 360)] {
        put(&place, &Mmp { check_interval: interval, ..mmp(Use::Mounted(7), "dead") });
        let waited = Cell::new(0);
        take(&place, 1, &|| waited.set(waited.get() + 1)).unwrap();
        assert_eq!(waited.get(), 2 * patience, "{interval}");
    }
}

#[test]
fn a_living_mount_is_refused_with_its_name_and_time() {
    let place = place();
    put(&place, &mmp(Use::Mounted(7), "other"));
    let waited = Cell::new(0);
    let taken = take(&place, 5, &|| {
        waited.set(waited.get() + 1);
        if waited.get() == 3 {
            put(&place, &mmp(Use::Mounted(8), "other"));
        }
    });
    let refused = taken.expect_err("it is mounted").to_string();
    let told = "in use by other (device vda) at 1970-01-01 00:00:01 UTC";
    assert!(refused.starts_with(told), "{refused}");
    assert_eq!(waited.get(), 3, "it waits no longer than it needs to");
    assert_eq!(place.read().unwrap().state, Use::Mounted(8), "it wrote");
}

#[test]
fn of_two_computers_that_start_together_one_fails() {
    let place = place();
    put(&place, &mmp(Use::Mounted(7), "dead"));
    let waits = Cell::new(0);
    let taken = take(&place, 5, &|| {
        waits.set(waits.get() + 1);
        if waits.get() == 15 {
            put(&place, &mmp(Use::Mounted(1), "quicker"));
        }
    });
    assert!(matches!(taken, Err(Error::OtherComputer { node, .. }) if node == "quicker"));
}

#[test]
fn a_file_system_that_is_checked_is_refused() {
    let place = place();
    put(&place, &mmp(Use::Checked, "here"));
    let refused = take(&place, 5, &|| panic!("a wait")).expect_err("a check");
    assert!(refused.to_string().contains("started on here at 1970"), "{refused}");
    assert!(refused.to_string().contains("or was interrupted"), "{refused}");
}

#[test]
fn a_dead_check_is_taken_over_after_two_waits_and_a_living_one_is_not() {
    let place = place();
    let found = mmp(Use::Checked, "here");
    put(&place, &found);
    let waited = Cell::new(0);
    let wait = || waited.set(waited.get() + 1);
    claim(&place, &found, CheckMark::TakenOver, 5, &wait).unwrap();
    assert_eq!(waited.get(), 22);
    put(&place, &found);
    waited.set(0);
    let taken = claim(&place, &found, CheckMark::TakenOver, 5, &|| {
        wait();
        if waited.get() == 3 {
            put(&place, &Mmp { time: 2, ..found.clone() });
        }
    });
    assert!(matches!(taken, Err(Error::BeingChecked { .. })));
    assert_eq!(waited.get(), 3, "it waits no longer than it needs to");
    assert_eq!(place.read().unwrap().state, Use::Checked, "it wrote");
}

#[test]
fn a_number_of_another_computer_ends_the_counting() {
    let place = place();
    put(&place, &mmp(Use::Clean, ""));
    let mine = take(&place, 1, &|| ()).unwrap();
    let second = Duration::from_secs(1);
    let next = place.next(&mine, 1, second).unwrap();
    assert_ne!(next.state, mine.state);
    assert_eq!(next.check_interval, 5);
    let last = Mmp { state: Use::Mounted(LAST_SEQUENCE), ..next };
    put(&place, &last);
    assert_eq!(place.next(&last, 1, second).unwrap().state, Use::Mounted(1));
    put(&place, &mmp(Use::Mounted(1), "thief"));
    let stolen = place.next(&Mmp { state: Use::Mounted(1), ..last }, 1, second);
    assert!(matches!(stolen, Err(Error::OtherComputer { .. })), "{stolen:?}");
    assert_eq!(place.read().unwrap().node, b"thief");
}

#[test]
fn a_slow_mount_makes_others_wait_for_longer() {
    let place = place();
    put(&place, &mmp(Use::Clean, ""));
    let mut mine = take(&place, 1, &|| ()).unwrap();
    for (elapsed, interval) in [(1, 5), (20, 40), (1_000, 300), (2, 5)] {
        mine = place.next(&mine, 1, Duration::from_secs(elapsed)).unwrap();
        assert_eq!(mine.check_interval, interval, "{elapsed}");
    }
}

/// A device that reports a lost write to the MMP thread while a flush runs.
struct Host {
    inner: RamDevice,
    guarded: OnceLock<Weak<GuardedDevice>>,
}

impl Device for Host {
    forward!(inner: len, is_read_only, read, discard);
    fn write(&self, offset: u64, bufs: &[&[u8]], kind: WriteKind) -> Result<(), DeviceError> {
        self.inner.write(offset, bufs, kind)?;
        match kind.is_durable() {
            true => self.flush(),
            false => Ok(()),
        }
    }
    fn flush(&self) -> Result<(), DeviceError> {
        let guarded = self.guarded.get().and_then(Weak::upgrade).expect("alive");
        let lost = DeviceError::new(Operation::Write, 0, 0, io::ErrorKind::Other);
        assert!(guarded.store(|| Err::<(), _>(lost.into())).is_none());
        Ok(())
    }
}

#[test]
fn a_flush_fails_if_the_mmp_thread_got_its_report() {
    let inner = RamDevice::create(4096).unwrap();
    let host = Arc::new(Host { inner, guarded: OnceLock::new() });
    let guarded = Arc::new(GuardedDevice::new(host.clone()));
    host.guarded.set(Arc::downgrade(&guarded)).unwrap();
    let told = guarded.write_durable_at(0, &[1]).expect_err("the write may be lost");
    assert!(told.to_string().contains("no longer written"), "{told}");
    assert!(guarded.flush().is_err() && guarded.is_stopped());
}
