use super::*;
use std::collections::HashSet;

/// Adds `hashes` to 1024 buckets, and returns the number of hashes in the fullest bucket. All
/// callers pass 4096 hashes, four per bucket on average.
fn fullest(hashes: impl Iterator<Item = u64>, shift: u32) -> u32 {
    let mut buckets = [0; 1024];
    hashes.for_each(|hash| buckets[(hash >> shift) as usize % 1024] += 1);
    buckets.into_iter().max().expect("there are buckets")
}

/// Returns keys that a process may draw: the fixed keys, and others that are the same in each
/// test run.
fn some_keys(count: u64) -> Vec<Keys> {
    let drawn = |n: u64| {
        let mut rng = fastrand::Rng::with_seed(n);
        let words: Vec<u64> = (0..10_000).map(|_| rng.u64(..)).collect();
        Keys::of(|n| words[n as usize])
    };
    std::iter::once(Keys::FIXED).chain((1..count).map(drawn)).collect()
}

#[test]
fn each_process_draws_keys_of_its_own() {
    let (one, other) = (Keys::of_process(), Keys::of_process());
    assert!(one.name.seed != other.name.seed && one.name.step != other.name.step);
    assert!(one.number != other.number);
    assert!(one.number.spreads() && one.number.0 % 2 == 1);
}

#[test]
fn numbers_and_names_spread_in_the_low_and_in_the_high_bits() {
    for keys in some_keys(20) {
        for shift in [0, 32, 54] {
            for stride in [1_u64, 64, 4096, 1 << 32] {
                let hashes = (0..4096).map(|n| hash_with(keys.name, &(n * stride)));
                let most = fullest(hashes, shift);
                assert!(most < 20, "{most} of stride {stride} at {shift}, {keys:?}");
            }
            let names = (0..4096).map(|n| hash_with(keys.name, format!("file{n}").as_str()));
            let most = fullest(names, shift);
            assert!(most < 20, "{most} at {shift}, {keys:?}");
        }
    }
}

#[test]
fn numbers_of_many_groups_fall_into_buckets_of_their_own() {
    for Keys { number, .. } in some_keys(50) {
        for (group, apart) in [(8192, 1), (8192, 8), (8176, 1), (32768, 1), (32768, 4)] {
            let firsts = (0..64).flat_map(|g| (12..28).map(move |n| g * apart * group + n));
            let buckets: HashSet<u64> = firsts.map(|n: u64| number.hash(&n) >> 50).collect();
            assert_eq!(buckets.len(), 64 * 16, "groups of {group}, each {apart}th");
        }
    }
}

#[test]
fn numbers_in_a_row_fill_buckets_evenly() {
    for Keys { number, .. } in some_keys(50) {
        let most = fullest((1..=4096_u64).map(|n| number.hash(&n)), 54);
        assert!(most < 12, "{most} of {number:?}");
    }
    for stride in [3, 16, 64, 4096, 8192, 1 << 32] {
        let most = fullest((1..=4096_u64).map(|n| Keys::FIXED.number.hash(&(n * stride))), 54);
        assert!(most < 12, "{most} of stride {stride}");
    }
}

/// Returns the mean number of entries that a look-up compares in a table of 2^14 buckets with
/// these hashes.
fn looks(hashes: impl Iterator<Item = u64>) -> f64 {
    let mut buckets = vec![0_u32; 1 << 14];
    hashes.for_each(|hash| buckets[(hash >> 50) as usize] += 1);
    let all: u32 = buckets.iter().sum();
    let looks: u64 = buckets.iter().map(|len| u64::from(*len).pow(2)).sum();
    looks as f64 / f64::from(all)
}

#[test]
fn inode_numbers_that_fill_one_bucket_under_one_key_spread_under_others() {
    let crafted: Vec<u32> =
        (0..1 << 23).filter(|n| Keys::FIXED.number.hash(n) >> 50 == 0).collect();
    assert!(crafted.len() > 400);
    let keys = some_keys(200);
    let under = |keys: &Keys| looks(crafted.iter().map(|n| keys.number.hash(n)));
    assert_eq!(under(&keys[0]), crafted.len() as f64, "the numbers are well chosen");
    let mean = keys[1..].iter().map(under).sum::<f64>() / 199.0;
    assert!(mean < 1.5, "{mean} looks");
}

#[test]
fn block_numbers_that_fill_one_bucket_under_one_key_spread_under_others() {
    // Multiples of the key's inverse have the hashes 0, 1, 2 and so on.
    let key = Keys::FIXED.number.0;
    let inverse = (0..6).fold(key, |x, _| x.wrapping_mul(2_u64.wrapping_sub(key.wrapping_mul(x))));
    let crafted: Vec<u64> = (0..4096).map(|n| inverse.wrapping_mul(n)).collect();
    let keys = some_keys(200);
    let under = |keys: &Keys| looks(crafted.iter().map(|n| keys.number.hash(n)));
    assert_eq!(under(&keys[0]), 4096.0, "the numbers are well chosen");
    let mean = keys[1..].iter().map(under).sum::<f64>() / 199.0;
    assert!(mean < 2.0, "{mean} looks");
}

#[test]
fn names_that_fill_one_bucket_under_one_key_spread_under_others() {
    let names = (0..1 << 20).map(|n| format!("crafted{n}"));
    let crafted: Vec<String> =
        names.filter(|name| hash_with(Keys::FIXED.name, name.as_bytes()) >> 50 == 0).collect();
    assert!(crafted.len() > 40);
    let keys = some_keys(200);
    let under =
        |keys: &Keys| looks(crafted.iter().map(|name| hash_with(keys.name, name.as_bytes())));
    assert_eq!(under(&keys[0]), crafted.len() as f64, "the names are well chosen");
    let mean = keys[1..].iter().map(under).sum::<f64>() / 199.0;
    assert!(mean < 1.1, "{mean} looks");
}

#[test]
fn the_bytes_before_an_end_have_the_hash_of_these_bytes() {
    let key = Keys::FIXED.name;
    for end in 0..40 {
        // Bytes that differ from a slash in one bit, and the two byte values next to a slash.
        let bytes = [b'.', 0, b'0', 0xaf, b'o', b'?', b'\''];
        let name: Vec<u8> = (0..end).map(|n| bytes[n % bytes.len()]).collect();
        for more in [&b""[..], b"/", b"//.0/", b"/ends/after/many/more/bytes"] {
            let found = key.hash_before(b'/', &[&name[..], more].concat());
            assert_eq!(found, (end, key.hash(&name)), "{name:?} {more:?}");
        }
    }
}

#[test]
fn a_rest_of_zeros_is_not_nothing() {
    assert_ne!(hash_of(&b"ab\0"[..]), hash_of(&b"ab"[..]));
    assert_ne!(hash_of(&[0_u8; 8][..]), hash_of(&[0_u8; 9][..]));
}
