use super::*;
use crate::ram::RamDevice;
use lanefs_lanes::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_flush_waits_for_steps_and_writes_go_on_meanwhile() {
    let ram = Arc::new(RamDevice::create(4096).unwrap());
    let pace = Pace::Steps { steps: 3, patience: Duration::from_secs(600) };
    let gated = GatedDevice::new(ram, pace);
    let flushed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            gated.flush().unwrap();
            flushed.store(true, Ordering::Release);
        });
        gated.write_at(0, &[7; 100]).unwrap();
        assert!(!flushed.load(Ordering::Acquire));
        // The flush may start after some of the steps. It waits for three steps after its
        // start.
        while !flushed.load(Ordering::Acquire) {
            gated.step();
            std::thread::yield_now();
        }
    });
    assert!(gated.progress.lock().steps >= 3);
    assert!(!gated.is_holding());
}

#[test]
fn a_flush_ends_when_no_step_does() {
    let ram = Arc::new(RamDevice::create(4096).unwrap());
    let pace = Pace::Steps { steps: 3, patience: Duration::from_millis(1) };
    GatedDevice::new(ram, pace).flush().unwrap();
}
