use super::*;

#[test]
fn a_run_starts_with_a_row_where_one_does() {
    let mut bitmap = Bitmap::new(1000);
    bitmap.fill(0..10);
    let rows = Rows::in_group(48, 48 * 7 + 5);
    assert_eq!(rows, Rows { width: 48, first: 43 });
    assert_eq!(find_on_rows(&bitmap, 0, 48, rows), Some(43));
    assert_eq!(find_on_rows(&bitmap, 44, 96, rows), Some(91));
    bitmap.fill(43..1000);
    assert_eq!(find_on_rows(&bitmap, 0, 20, rows), None);
    assert_eq!(Rows::in_group(48, 96), Rows { width: 48, first: 0 });
    assert!(rows.suit(48) && !rows.suit(47) && !Rows::in_group(0, 7).suit(48));
}

#[test]
fn runs_are_found_as_in_a_list_of_bits() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for len in [1, 63, 64, 65, 200, 1000] {
        let mut list = vec![false; len as usize];
        for _ in 0..300 {
            let start = rng.usize(0..len as usize);
            let end = (start + rng.usize(0..90)).min(len as usize);
            list[start..end].fill(rng.bool());
            let mut bitmap = Bitmap::new(len);
            (0..len).filter(|i| list[*i as usize]).for_each(|i| bitmap.fill(i..i + 1));
            check(&bitmap, &list, &mut rng);
        }
    }
}

fn check(bitmap: &Bitmap, list: &[bool], rng: &mut fastrand::Rng) {
    let len = list.len() as u32;
    let at = rng.u32(0..len);
    let mut run = at..at;
    if !list[at as usize] {
        while run.start > 0 && !list[run.start as usize - 1] {
            run.start -= 1;
        }
        while run.end < len && !list[run.end as usize] {
            run.end += 1;
        }
    }
    assert_eq!(around(bitmap, at), run);
    let most = rng.u32(1..40);
    assert_eq!(clear_at(bitmap, at, most), (run.end - at).min(most));

    let want = rng.u32(1..40);
    let clear =
        |start: u32, n: u32| start + n <= len && (start..start + n).all(|i| !list[i as usize]);
    let begins = |i: &u32| *i == at || *i == 0 || list[*i as usize - 1];
    let fit = (at..len).chain(0..at).filter(begins).find(|i| clear(*i, want));
    match find(bitmap, at, want) {
        Found::Fit(start) => assert_eq!(Some(start), fit),
        Found::Longest { start, len: n } => {
            assert!(fit.is_none() && n < want && clear(start, n));
            assert!((0..len).all(|i| !clear(i, n + 1)));
        }
    }
}
