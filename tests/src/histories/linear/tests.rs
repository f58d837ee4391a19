use super::*;
use crate::histories::history::Owners;

fn owner(name: &str) -> DemandId {
    DemandId::from_lossy(name)
}

fn gpus(names: &[&str]) -> Option<BTreeSet<GpuId>> {
    Some(names.iter().map(|name| GpuId::from_lossy(name)).collect())
}

fn grant(name: &str) -> Act {
    Act::Grant {
        owner: owner(name),
        gpus: gpus(&["g"]),
    }
}

fn release(name: &str) -> Act {
    Act::Release {
        owner: owner(name),
        gpus: gpus(&["g"]),
    }
}

/// Somebody asked for something, and never learned what came of it.
fn grant_perhaps(name: &str) -> Act {
    Act::Grant {
        owner: owner(name),
        gpus: None,
    }
}

fn release_perhaps(name: &str) -> Act {
    Act::Release {
        owner: owner(name),
        gpus: None,
    }
}

fn sees(name: &str) -> Act {
    Act::Read(Owners::from([(GpuId::from_lossy("g"), owner(name))]))
}

fn sees_free() -> Act {
    Act::Read(Owners::new())
}

fn gone(name: &str) -> Act {
    Act::Gone { owner: owner(name) }
}

/// Each from when to when; until 0: never answered.
type Requests = Vec<(u64, u64, Act)>;

fn wrong(requests: &[(u64, u64, Act)]) -> Vec<String> {
    let entries = requests.iter().enumerate();
    let entries = entries.map(|(client, (asked, answered, act))| Entry {
        client,
        asked: *asked,
        answered: (*answered > 0).then_some(*answered),
        act: act.clone(),
    });
    check(&entries.collect::<Vec<_>>())
}

#[test]
fn histories_that_an_order_explains_are_good() {
    let good: [(&str, Requests); 9] = [
        ("nothing", vec![]),
        (
            "one after the other",
            vec![
                (1, 2, sees_free()),
                (3, 4, grant("a")),
                (5, 6, sees("a")),
                (7, 8, release("a")),
                (9, 10, sees_free()),
                (11, 12, grant("b")),
            ],
        ),
        (
            "reads during a grant see either",
            vec![
                (1, 10, grant("a")),
                (2, 3, sees_free()),
                (4, 5, sees("a")),
                (6, 7, sees("a")),
            ],
        ),
        (
            "answers that come in another order than the effects",
            vec![(1, 10, release("b")), (2, 9, grant("a")), (0, 20, grant("b"))],
        ),
        (
            "a grant that nobody was told of is seen",
            vec![(1, 0, grant_perhaps("a")), (5, 6, sees_free()), (7, 8, sees("a"))],
        ),
        (
            "one that came to nothing, too",
            vec![(1, 0, grant_perhaps("a")), (5, 6, grant("b")), (7, 8, sees("b"))],
        ),
        (
            "a release that nobody was told of comes late",
            vec![
                (1, 2, grant("a")),
                (3, 0, release_perhaps("a")),
                (5, 6, sees("a")),
                (7, 8, gone("a")),
                (9, 10, grant("b")),
            ],
        ),
        (
            "who has nothing holds nothing",
            vec![(1, 2, gone("a")), (3, 4, grant("a"))],
        ),
        (
            "each GPU for itself",
            vec![
                (1, 2, grant("a")),
                (
                    3,
                    4,
                    Act::Grant {
                        owner: owner("b"),
                        gpus: gpus(&["h"]),
                    },
                ),
            ],
        ),
    ];
    for (what, requests) in good {
        assert_eq!(wrong(&requests), Vec::<String>::new(), "{what}");
    }
}

#[test]
fn histories_that_none_explains_are_found() {
    let bad: [(&str, Requests); 9] = [
        ("given to two", vec![(1, 2, grant("a")), (3, 4, grant("b"))]),
        (
            "given to two at once",
            vec![(1, 4, grant("a")), (2, 3, grant("b")), (5, 6, sees("b"))],
        ),
        ("a stale read", vec![(1, 2, grant("a")), (3, 4, sees_free())]),
        (
            "a stale read of what is back",
            vec![(1, 2, grant("a")), (3, 4, release("a")), (5, 6, sees("a"))],
        ),
        (
            "reads that go back in time, during a grant",
            vec![(1, 10, grant("a")), (2, 3, sees("a")), (4, 5, sees_free())],
        ),
        ("out of nothing", vec![(1, 2, sees("a"))]),
        (
            "released what another has",
            vec![(1, 2, grant("a")), (3, 4, release("b"))],
        ),
        ("forgotten", vec![(1, 2, grant("a")), (3, 4, gone("a"))]),
        (
            "a grant that nobody was told of comes true before it was asked for",
            vec![(1, 2, sees("a")), (3, 0, grant_perhaps("a")), (4, 5, sees("a"))],
        ),
    ];
    for (what, requests) in bad {
        let wrong = wrong(&requests);
        assert_eq!(wrong.len(), 1, "{what}: {wrong:?}");
        assert!(wrong[0].starts_with("g: "), "{what}: {wrong:?}");
    }
}

#[test]
fn it_says_who_was_told_what_and_when() {
    let wrong = wrong(&[(1, 2, grant("a")), (3, 4, sees_free())]);
    let told = "g: client 1 asked at 3 and was answered at 4 that it is free; whatever the order of the others, it \
                was a's then";
    assert_eq!(wrong, [told]);
}

/// Sixteen clients that overlap in all ways, each of which is seen or not: the search ends all the same.
#[test]
fn many_at_once_are_no_trouble() {
    let mut requests = Vec::new();
    for round in 0..200 {
        let at = round * 100;
        for client in 0..16 {
            requests.push((at + client, 0, grant_perhaps(&format!("r{round}-c{client}"))));
        }
        let winner = format!("r{round}-c7");
        requests.push((at + 20, at + 21, sees(&winner)));
        requests.push((at + 30, at + 40, release(&winner)));
        requests.push((at + 31, at + 50, sees_free()));
    }
    assert_eq!(wrong(&requests), Vec::<String>::new());
    requests.push((999_000, 999_001, sees("r3-c7")));
    assert_eq!(wrong(&requests).len(), 1);
}
