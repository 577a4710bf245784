use crate::credits::*;
use lanefs_lanes::MAX_LANES;

fn credits(capacity: u32, stashes: u32) -> Credits {
    Credits::new(Limits { grains: 10, capacity, stashes }, Tid(1))
}

fn lanes() -> (Lane, Lane) {
    let mut all = Lane::all();
    (all.next().unwrap(), all.next().unwrap())
}

#[test]
fn no_lane_takes_from_the_stash_of_another() {
    let ((a, b), credits) = (lanes(), credits(100, 40));
    credits.draw(Tid(1), a, 800, None).unwrap();
    let stash = credits.stashes.of(a).lock().grains;
    assert!(0 < stash && stash <= 200);
    assert!(credits.draw(Tid(1), b, 210 - stash, None).is_err());
    let ticket = credits.queue(210 - stash);
    assert!(credits.draw(Tid(1), b, 210 - stash, Some(&ticket)).is_err());
    assert_eq!(credits.stashes.of(a).lock().grains, stash);
    credits.open();
    credits.draw(Tid(2), b, 210 - stash, Some(&ticket)).unwrap();
    drop(ticket);
    credits.draw(Tid(2), a, 790 + stash, None).unwrap();
    assert!(credits.draw(Tid(2), b, 1, None).is_err());
}

#[test]
fn with_threads_on_all_lanes_each_draws_from_its_own_stash() {
    let barrier = lanefs_lanes::sync::unscheduled::Barrier::new(MAX_LANES);
    let take_lane = || {
        Lane::current();
        barrier.wait();
    };
    std::thread::scope(|s| (0..MAX_LANES).for_each(|_| _ = s.spawn(take_lane)));
    let credits = credits(8192, 2048);
    let (mut refills, mut rounds) = (0, 0);
    let is_short = |lane| credits.stashes.of(lane).lock().grains < 90;
    // A mkdir joins with nine credits; two are used, until the transaction is full.
    'transaction: loop {
        for lane in Lane::all() {
            refills += u32::from(is_short(lane));
            if credits.draw(Tid(1), lane, 90, None).is_err() {
                break 'transaction;
            }
            credits.give_back(Tid(1), lane, 70);
        }
        rounds += 1;
    }
    assert!(rounds * MAX_LANES * 2 >= 8192 - 2048, "{rounds} rounds until the transaction is full");
    assert!(
        5 * refills <= rounds as u32 * MAX_LANES as u32,
        "{refills} refills in {rounds} rounds"
    );
}

#[test]
fn a_stash_of_the_last_transaction_is_void_in_the_next() {
    let ((a, _), credits) = (lanes(), credits(100, 100));
    credits.draw(Tid(1), a, 10, None).unwrap();
    credits.open();
    credits.draw(Tid(2), a, 1000, None).unwrap();
    assert!(credits.draw(Tid(2), a, 1, None).is_err(), "990 grains came from nowhere");
}

#[test]
fn no_request_overtakes_the_first_in_the_queue() {
    let ((a, b), credits) = (lanes(), credits(100, 0));
    credits.draw(Tid(1), a, 900, None).unwrap();
    let big = credits.queue(500);
    assert!(credits.draw(Tid(1), a, 500, Some(&big)).is_err());
    assert!(credits.draw(Tid(1), b, 10, None).is_err(), "it has to queue up");
    credits.open();
    credits.draw(Tid(2), a, 500, Some(&big)).unwrap();
    drop(big);
    credits.draw(Tid(2), b, 500, None).unwrap();
}

#[test]
fn no_request_waits_if_there_is_enough_for_all() {
    let ((a, b), credits) = (lanes(), credits(100, 40));
    credits.draw(Tid(1), a, 1000, None).unwrap();
    let queue = [credits.queue(300), credits.queue(300)];
    credits.open();
    queue.iter().for_each(|ticket| ticket.wait(|| false));
    credits.draw(Tid(2), b, 400, None).unwrap();
    assert!(credits.draw(Tid(2), b, 1, None).is_err(), "others wait for what is left");
    credits.draw(Tid(2), a, 300, Some(&queue[1])).unwrap();
    credits.draw(Tid(2), a, 300, Some(&queue[0])).unwrap();
}

#[test]
fn unused_credits_go_to_a_waiter_before_a_stash() {
    let ((a, b), credits) = (lanes(), credits(100, 40));
    credits.draw(Tid(1), a, 300, None).unwrap();
    let big = credits.queue(1000);
    big.wait(|| false);
    credits.draw(Tid(1), b, 1000, Some(&big)).unwrap_err();
    credits.give_back(Tid(1), a, 300);
    big.wait(|| false);
    credits.draw(Tid(1), b, 1000, Some(&big)).unwrap();
}

#[test]
fn more_than_a_transaction_can_have_is_refused() {
    let credits = credits(100, 0);
    assert_eq!(credits.grains(100).unwrap(), 1000);
    assert!(matches!(credits.grains(101), Err(Error::TooBig { credits: 101, max: 100 })));
}
