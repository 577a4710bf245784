//! Tests with names of equal hash.

use crate::dir::tests::*;

/// Names with the same legacy hash, found by solving for the last two bytes.
const LEGACY: &str = "\
    sqkzba27 pjcnfalu tugikaWA xtzskaXE ttaidbS3 vzzgpbwC akddsbBk jjbsacV7 aizphcNK \
    edpcjcRK pnhelcm7 enyozcxK omoffdNC huighdSS rhnfkd5q vsebrdaG icfgvdsC kediaecQ \
    jahccewn loqleeYI hpppeeqs hgdyfe7D wzcogeMc exnpheNW ofkvqeK1 pidxyeWy obpnafZ3 \
    nsnobf2P bguwefcL mmwokf4T bnocrfJ9 fgstsf9e kjgjfgkI dxtmfgDE bhmozgRg uvljahXK \
    yzevghVG wruhoh2C lfeeth0a cowvaiUu blthgicX pdlbmiVC vgprmi2U yrowniV1 jkgioiiE \
    mdeariAc sgiuuiBk gwrmvitW ynuqbjJk igveej4G xwhygjm3 apkkijiC vgrdjj9i ttnmjja5 \
    meauljBw arroxjgM lwwwxjw3 ebfzyjAE qhofck0c nggagkYK nhdyhkle jgdcikis dkdokk0q \
    dmuotks7 xxjhukms peztukl3 nuiuwkqI wegeyksA icnxzk9G xdgxjl6U gfwznlcT cnfjumWc \
    ndftbn6G jgqifnwi gglqfnzX spvygnCs cvrklnE3 hlkktni3 oooigoLE jjqkooVJ ckluwoMm \
    dbqvzowM mkcsspqg kcrabqGX wwwscqhw jlgadqUI belveq25 mjkpkqdK iuqenqcC bholarAh \
    ikoshr6H zkmajrJW yqcmlrxk pbyenr9r dyffnra3 ywbhpruc tsrpyrPC neusasMd drpwjslM \
    xuztpsSC svlfbtcW ijdedttK cbjmhtrw ilnkltR5 sxiemtMg wqbwstJ5 gwzufus9 kblpgurb \
    qrnakuoa wfuuquAc edeqsu4w kdpbwuvG jlajyusC pszqavaA sstfiveS pavnkvj3 tzzgsv0Y \
    upopvv7u ajljxv3B xxcfhwfG efxmhw08 vtwxhwR3 onoylw5d cbdnnwag jzaepwq7 ebzjqw7S \
    gfdzqw7H acuoix88 leqjlxyu laxioxsb xxahsxzS wlqjuxo1 jirjcy1U lkupgylp ihaqjyCH \
    lkxokyBo mcybwys5 jpysdzeR narhfzwV pinplzYW ytbjtzUG yqxkvziC ytspxzc3 \
    ";

pub(crate) fn legacy_collisions(count: usize) -> Vec<Vec<u8>> {
    LEGACY.split_ascii_whitespace().take(count).map(|name| name.as_bytes().to_vec()).collect()
}

#[test]
fn the_listed_names_have_one_hash() {
    let hasher = context(1024, HashVersion::Legacy).hasher;
    let names = legacy_collisions(usize::MAX);
    assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 143);
    assert!(names.iter().all(|name| hasher.hash(name) == hasher.hash(&names[0])));
}

#[test]
fn names_of_one_hash_spread_over_leaves_and_are_found_and_read() {
    let mut rng = rng("collisions");
    let mut directory = Directory::new(context(1024, HashVersion::Legacy));
    let colliding = legacy_collisions(usize::MAX);
    let mut names: Vec<Vec<u8>> = colliding.clone();
    names.extend((0..600).map(|_| random_name(&mut rng, 100)));
    rng.shuffle(&mut names);
    names.dedup();
    for new in &names {
        if !directory.model.contains_key(new) {
            directory.insert(new, Ino(rng.u32(1..=INODES))).expect("room");
            directory.check();
        }
    }
    let root = htree::root(&directory.cx.format, &directory.blocks[0]).expect("a root");
    assert!(root.levels == 1 || root.index.iter().filter(|entry| entry.continues()).count() >= 2);
    for batch in [1, 2, 7, 10_000] {
        let read = directory.read_all(batch);
        assert_eq!(read.len(), directory.model.len() + 2);
        assert_eq!(read.into_iter().skip(2).collect::<BTreeMap<_, _>>(), directory.model);
    }
    rng.shuffle(&mut names);
    for gone in &names {
        if directory.model.contains_key(gone) {
            directory.remove(gone);
            directory.check();
        }
    }
}

#[test]
fn names_with_equal_halves_of_the_hash_are_each_read_once() {
    // Half MD4 pads a short name with its length, so a name that ends in the padding bytes has the
    // same hash.
    let mut directory = Directory::new(context(1024, HashVersion::HalfMd4));
    for i in 0..100u8 {
        let short = [b'a' + i % 26, b'a' + i / 26, b'z'];
        let mut long = vec![3u8; 32];
        long[1..4].copy_from_slice(&short);
        assert_eq!(directory.cx.hasher.hash(&short), directory.cx.hasher.hash(&long));
        directory.insert(&short, Ino(30)).expect("room");
        directory.insert(&long, Ino(31)).expect("room");
        directory.check();
    }
    for batch in [1, 2, 3] {
        assert_eq!(directory.read_all(batch).len(), 202);
    }
}
