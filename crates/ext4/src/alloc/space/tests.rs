use super::*;

impl Space {
    /// Draws `want` blocks and uses them up.
    fn draw_for_good(&self, want: u32, privilege: Privilege) -> u32 {
        let Some(mut drawn) = self.draw(&Draw { want, ahead: 0, privilege }, None) else {
            return 0;
        };
        drawn.use_up(drawn.blocks());
        drawn.blocks()
    }
}

#[test]
fn the_reserve_is_for_the_privileged_and_filled_first() {
    let space = Space::new(100, 10);
    assert_eq!(space.draw_for_good(200, Privilege::Ordinary), 90);
    assert_eq!(space.draw_for_good(1, Privilege::Ordinary), 0);
    assert_eq!(space.draw_for_good(4, Privilege::Root), 4);
    space.put_back(3);
    assert_eq!(space.draw_for_good(1, Privilege::Ordinary), 0);
    space.put_back(2);
    assert_eq!(space.draw_for_good(5, Privilege::Ordinary), 1);
    assert_eq!(space.draw_for_good(50, Privilege::Root), 10);
    assert_eq!(space.total(), 0);
}

#[test]
fn the_last_claim_gets_space_that_other_lanes_drew_in_advance() {
    let space = Space::new(1_000_000, 0);
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| assert_eq!(space.draw_for_good(1, Privilege::Ordinary), 1));
        }
    });
    assert_eq!(space.draw_for_good(u32::MAX, Privilege::Ordinary), 1_000_000 - 8);
}

#[test]
fn threads_neither_create_nor_lose_free_space() {
    let space = Space::new(10_000, 100);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for i in 0..2000 {
                    space.put_back(space.draw_for_good(1 + i * 37 % 5000, Privilege::Root));
                }
            });
        }
    });
    assert_eq!(space.total(), 10_000);
    space.lose(9_950);
    assert_eq!(space.draw_for_good(100, Privilege::Ordinary), 0);
    assert_eq!(space.draw_for_good(100, Privilege::Root), 50);
}

#[test]
fn no_lane_draws_in_advance_space_that_others_may_need() {
    let space = Space::new(1000, 0);
    let draw = Draw { want: 100, ahead: 900, privilege: Privilege::Ordinary };
    assert_eq!(space.draw(&draw, None).map(|drawn| drawn.blocks()), Some(1000));
    assert_eq!(space.draw_for_good(1, Privilege::Ordinary), 1);
    assert_eq!(space.draw(&draw, None).map(|drawn| drawn.blocks()), Some(100));
}

#[test]
fn space_lost_while_it_is_drawn_does_not_come_back() {
    let space = Space::new(1000, 0);
    let draw = Draw { want: 900, ahead: 0, privilege: Privilege::Ordinary };
    let drawn = space.draw(&draw, None);
    space.lose(300);
    drop(drawn);
    assert_eq!(space.total(), 700);
}

#[test]
fn a_claim_without_competitors_finds_all_free_space() {
    let space = Space::new(1000, 0);
    let privilege = Privilege::Ordinary;
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for want in 1..2000 {
                    // Draws up to `want` blocks and uses none, like a search that finds no run.
                    drop(space.draw(&Draw { want, ahead: 0, privilege }, None));
                }
            });
        }
        for _ in 0..500 {
            let alone = space.alone();
            let all = Draw { want: 1000, ahead: 0, privilege };
            let drawn = space.draw(&all, Some(&alone)).map(|drawn| drawn.blocks());
            assert_eq!(drawn, Some(1000));
        }
    });
    assert_eq!(space.total(), 1000);
}
