//! Leases of several managers on one store, on a clock that the test moves.

use jiff::Timestamp;
use poolwright_executor::Charge;
use poolwright_model::id::ControlEndpointId;
use poolwright_service::leases::{Lease, Leases, Round, Sharing, Takeover, TokioClock};
use poolwright_store::{Batch, Committed, Layer, SqliteStore, Store, StoreError, Stored};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

const TERM: Duration = Duration::from_secs(12);
const WRITE: Duration = Duration::from_secs(75);

struct Pool {
    store: Arc<dyn Store>,
    kept: BTreeSet<ControlEndpointId>,
}

fn endpoint(name: &str) -> ControlEndpointId {
    ControlEndpointId::from_lossy(name)
}

fn endpoints(names: &[&str]) -> BTreeSet<ControlEndpointId> {
    names.iter().map(|name| endpoint(name)).collect()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Pool {
    fn new() -> Self {
        Self {
            store: Arc::new(SqliteStore::in_memory().unwrap()),
            kept: endpoints(&["box-1", "box-2"]),
        }
    }

    fn manager(&self, name: &str) -> Leases {
        self.manager_at(name, name, &[])
    }

    /// One whose data directory has this id, and whose lock these earlier instances had.
    fn manager_at(&self, name: &str, home: &str, earlier: &[&str]) -> Leases {
        let sharing = Sharing {
            id: format!("id-of-{name}"),
            home: home.to_owned(),
            earlier: earlier.iter().map(|name| format!("id-of-{name}")).collect(),
            name: name.to_owned(),
            term: TERM,
            write_deadline: WRITE,
            clock: Arc::new(TokioClock::default()),
        };
        Leases::new(self.store.clone(), sharing)
    }

    async fn round(&self, manager: &Leases) -> Round {
        self.try_round(manager, &[]).await.unwrap()
    }

    async fn try_round(&self, manager: &Leases, busy: &[&str]) -> Result<Round, StoreError> {
        manager
            .round(&self.kept, &|| endpoints(busy), Timestamp::UNIX_EPOCH)
            .await
    }

    /// Lets time pass with rounds of these managers.
    async fn live(&self, managers: &[&Leases], time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            tokio::time::sleep(TERM / 3).await;
            for manager in managers {
                self.round(manager).await;
            }
        }
    }

    /// Whether a commit of this manager that concerns the endpoint is taken.
    async fn may_commit(&self, manager: &Leases, endpoint: &ControlEndpointId) -> bool {
        let Some(proof) = manager.tenure(endpoint).and_then(|tenure| tenure.proof) else {
            return false;
        };
        let mut batch = Batch::new();
        batch.expect(&proof.kind, &proof.id, proof.revision);
        self.store.commit(batch).await.is_ok()
    }
}

fn in_charge(manager: &Leases) -> Vec<&'static str> {
    let all = ["box-1", "box-2"];
    let ours = |name: &&str| manager.tenure(&endpoint(name)).is_some();
    all.into_iter().filter(ours).collect()
}

fn from(manager: &Leases) -> Option<Instant> {
    manager.tenure(&endpoint("box-1")).unwrap().from
}

#[tokio::test(start_paused = true)]
async fn the_first_is_in_charge_and_stays_so_while_it_lives() {
    let pool = Pool::new();
    let (a, b) = (pool.manager("a"), pool.manager("b"));
    pool.round(&a).await;
    pool.live(&[&a, &b], TERM * 10).await;
    assert_eq!(in_charge(&a), ["box-1", "box-2"]);
    assert!(a.has_calendar() && !b.has_calendar());
    assert!(in_charge(&b).is_empty());
    assert!(b.holder(&endpoint("box-1")).contains("manager a"));
    assert!(pool.may_commit(&a, &endpoint("box-1")).await);
}

#[tokio::test(start_paused = true)]
async fn one_that_is_silent_is_replaced_after_it_has_stopped_by_itself() {
    let pool = Pool::new();
    let (a, b) = (pool.manager("a"), pool.manager("b"));
    pool.round(&a).await;
    pool.round(&b).await;
    let proof = a.tenure(&endpoint("box-1")).unwrap().proof.unwrap();
    // A is stopped. Just before its term ends it may still believe in its leases, and nobody else has them.
    tokio::time::sleep(TERM - seconds(1)).await;
    pool.round(&b).await;
    assert_eq!(in_charge(&a), ["box-1", "box-2"]);
    assert!(in_charge(&b).is_empty());
    // Its term ends by its own clock, before anybody takes over.
    tokio::time::sleep(seconds(2)).await;
    pool.round(&b).await;
    assert!(in_charge(&a).is_empty() && in_charge(&b).is_empty());
    tokio::time::sleep(seconds(3)).await;
    pool.round(&b).await;
    assert_eq!(in_charge(&b), ["box-1", "box-2"]);
    assert!(b.has_calendar());

    // Nothing is sent before the sessions of A are ended, nor before what it may have sent is over.
    let taken_over = b.to_cut_off();
    let taken = taken_over.iter().map(|taken| taken.endpoint.as_str());
    assert_eq!(taken.collect::<Vec<_>>(), ["box-1", "box-2"]);
    assert!(from(&b) > Some(Instant::now() + seconds(24 * 3600)));
    tokio::time::sleep(seconds(4)).await;
    pool.round(&b).await;
    assert_eq!(b.to_cut_off(), [], "each is told once");
    b.cut_off(&taken_over[0]);
    assert_eq!(from(&b), Some(Instant::now() + WRITE));

    // A goes on: what it wanted to journal is refused, and it learns that it is dead.
    let mut late = Batch::new();
    late.expect(&proof.kind, &proof.id, proof.revision);
    let refused = pool.store.commit(late).await;
    assert!(matches!(refused, Err(StoreError::Conflict { .. })));
    assert!(pool.try_round(&a, &[]).await.is_err());
    assert!(in_charge(&a).is_empty());
    pool.live(&[&a, &b], TERM * 2).await;
    assert!(
        in_charge(&a).is_empty(),
        "it lives again, and is in charge of nothing"
    );
    assert_eq!(in_charge(&b), ["box-1", "box-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_ends_in_order_is_replaced_at_once() {
    let pool = Pool::new();
    let (a, b) = (pool.manager("a"), pool.manager("b"));
    pool.round(&a).await;
    pool.round(&b).await;
    a.give_back(Timestamp::UNIX_EPOCH).await.unwrap();
    pool.round(&b).await;
    assert_eq!((in_charge(&b), b.to_cut_off()), (vec!["box-1", "box-2"], vec![]));
    assert_eq!(from(&b), None, "nothing is on its way");
    // It does not come back to life by a round that was under way.
    pool.round(&a).await;
    assert!(a.to_cut_off().is_empty());
    assert!(in_charge(&a).is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_that_starts_again_at_its_home_goes_on_at_once() {
    let pool = Pool::new();
    let a = pool.manager_at("a", "home-of-a", &[]);
    pool.round(&a).await;
    // The lock of the data directory says that the one before is gone.
    let again = pool.manager_at("a-again", "home-of-a", &["a"]);
    let asked = Instant::now();
    assert_eq!(again.living_copy(Timestamp::UNIX_EPOCH).await.unwrap(), None);
    assert_eq!(asked.elapsed(), Duration::ZERO, "it waits for nobody");
    pool.round(&again).await;
    assert_eq!(
        (in_charge(&again), again.to_cut_off()),
        (vec!["box-1", "box-2"], vec![])
    );
    assert_eq!(from(&again), None);
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_manager_sent_is_waited_for_by_whoever_comes_after_its_successor() {
    let pool = Pool::new();
    let a = pool.manager("a");
    pool.round(&a).await;
    let b = pool.manager_at("b", "home-of-b", &[]);
    pool.round(&b).await;
    pool.live(&[&b], TERM * 2).await;
    assert_eq!(in_charge(&b), ["box-1", "box-2"]);
    // B is killed before it has waited, and starts again at once.
    let again = pool.manager_at("b-again", "home-of-b", &["b"]);
    pool.round(&again).await;
    let taken_over = again.to_cut_off();
    let before = taken_over.iter().map(|taken| taken.from.as_str());
    assert_eq!(before.collect::<Vec<_>>(), ["id-of-a", "id-of-a"]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_handed_over_to_who_collects_them_once_nothing_works_there() {
    let pool = Pool::new();
    let (a, b) = (pool.manager("a"), pool.manager("b"));
    // Each is in charge of one.
    let only = Pool {
        store: pool.store.clone(),
        kept: endpoints(&["box-1"]),
    };
    only.round(&a).await;
    pool.round(&b).await;
    assert_eq!((in_charge(&a), in_charge(&b)), (vec!["box-1"], vec!["box-2"]));

    // B has nothing to say of an operation that begins at box-1; A collects.
    let both = endpoints(&["box-1", "box-2"]);
    b.want(&both);
    a.want(&both);
    pool.round(&b).await;
    pool.round(&a).await;
    // While something runs at box-2 it stays where it is.
    let round = pool.try_round(&b, &["box-2"]).await.unwrap();
    assert!(round.handed_over.is_empty());
    assert_eq!(in_charge(&b), ["box-2"]);
    // But nothing more begins there, and what runs has its turn, and no more than that.
    assert!(b.is_wanted_elsewhere(&endpoint("box-2")));
    assert!(
        !a.is_wanted_elsewhere(&endpoint("box-2")),
        "it is not A's to give away"
    );
    assert!(b.overdue().is_empty());
    for _ in 0..8 {
        tokio::time::sleep(TERM / 3).await;
        pool.try_round(&b, &["box-2"]).await.unwrap();
        pool.round(&a).await;
    }
    assert_eq!(b.overdue(), [endpoint("box-2")]);
    let round = pool.round(&b).await;
    assert_eq!(round.handed_over, [endpoint("box-2")]);
    pool.round(&b).await;
    assert!(b.overdue().is_empty() && !b.is_wanted_elsewhere(&endpoint("box-2")));
    assert!(in_charge(&b).is_empty());
    pool.round(&a).await;
    assert_eq!((in_charge(&a), a.to_cut_off()), (vec!["box-1", "box-2"], vec![]));
    assert_eq!(a.tenure(&endpoint("box-2")).unwrap().from, None);
    pool.live(&[&a, &b], TERM).await;
    assert_eq!(in_charge(&a), ["box-1", "box-2"], "and nobody wants it back");
}

/// With the product's term, however the beats of the two lie to each other.
#[tokio::test(start_paused = true)]
async fn who_waits_for_the_endpoint_of_another_manager_has_it_within_30_s() {
    for apart in 0..16 {
        let pool = Pool::new();
        let product = |name: &str| Sharing {
            clock: Arc::new(TokioClock::default()),
            ..Sharing::new(name.to_owned(), name.to_owned(), WRITE)
        };
        let beat = product("a").pause();
        let (a, b) = (product("a"), product("b"));
        let (a, b) = (
            Leases::new(pool.store.clone(), a),
            Leases::new(pool.store.clone(), b),
        );
        let only = Pool {
            store: pool.store.clone(),
            kept: endpoints(&["box-1"]),
        };
        only.round(&a).await;
        let mut next_of_a = Instant::now() + beat;
        tokio::time::sleep(beat * apart / 16).await;
        pool.round(&b).await;
        let mut next_of_b = Instant::now() + beat;
        assert_eq!((in_charge(&a), in_charge(&b)), (vec!["box-1"], vec!["box-2"]));

        // Something runs at box-2 for days; it pauses once it is told to.
        let (asked, mut busy) = (Instant::now(), true);
        while in_charge(&a) != ["box-1", "box-2"] {
            assert!(asked.elapsed() < seconds(30), "{apart}: {:?}", asked.elapsed());
            let both = endpoints(&["box-1", "box-2"]);
            a.want(&both);
            if Instant::now() >= next_of_a {
                pool.round(&a).await;
                next_of_a = Instant::now() + beat;
            }
            if Instant::now() >= next_of_b {
                let at: &[&str] = if busy { &["box-2"] } else { &[] };
                pool.try_round(&b, at).await.unwrap();
                busy &= b.overdue().is_empty();
                next_of_b = Instant::now() + beat;
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        assert!(!busy, "it had its turn");
    }
}

/// The store fails just after the leases were taken: what follows from that is done all the same.
#[tokio::test(start_paused = true)]
async fn a_take_over_is_not_forgotten_where_the_rest_of_its_round_fails() {
    let wishes = Arc::new(NoWishes::default());
    let pool = Pool {
        store: wishes.clone(),
        ..Pool::new()
    };
    let (a, b, c) = (pool.manager("a"), pool.manager("b"), pool.manager("c"));
    let only = |name| Pool {
        store: pool.store.clone(),
        kept: endpoints(&[name]),
    };
    only("box-1").round(&a).await;
    only("box-2").round(&c).await;
    pool.round(&b).await;
    assert!(in_charge(&b).is_empty());
    // A dies. What B needs both for is asked for in the very round in which it takes over from A.
    b.want(&endpoints(&["box-1", "box-2"]));
    wishes.fail.store(true, Ordering::SeqCst);
    let mut failed = false;
    for _ in 0..8 {
        tokio::time::sleep(TERM / 3).await;
        only("box-2").round(&c).await;
        b.want(&endpoints(&["box-1", "box-2"]));
        failed |= pool.try_round(&b, &[]).await.is_err();
    }
    assert!(failed && in_charge(&b) == ["box-1"]);
    assert!(from(&b) > Some(Instant::now() + seconds(24 * 3600)));
    let taken_over = b.to_cut_off();
    assert_eq!(taken_over.len(), 1, "{taken_over:?}");
    assert_eq!(taken_over[0].from, "id-of-a");
    wishes.fail.store(false, Ordering::SeqCst);
    pool.round(&b).await;
    b.cut_off(&taken_over[0]);
    assert_eq!(from(&b), Some(Instant::now() + WRITE));
}

/// A store that refuses what managers wait for, while it is told to.
struct NoWishes {
    store: SqliteStore,
    fail: AtomicBool,
}

impl Default for NoWishes {
    fn default() -> Self {
        Self {
            store: SqliteStore::in_memory().unwrap(),
            fail: AtomicBool::new(false),
        }
    }
}

impl Layer for NoWishes {
    fn below(&self) -> &dyn Store {
        &self.store
    }

    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        if self.fail.load(Ordering::SeqCst) && format!("{batch:?}").contains("lease-wish") {
            return Err(StoreError::Unavailable {
                reason: "the cable is cut".to_owned(),
                hint: "mend it",
            });
        }
        self.store.commit(batch).await
    }
}

/// Fault 9: eight of them.
#[tokio::test(start_paused = true)]
async fn of_many_that_start_at_once_each_endpoint_has_one() {
    let pool = Pool::new();
    let managers: Vec<Leases> = (0..8).map(|n| pool.manager(&format!("m{n}"))).collect();
    let rounds = managers.iter().map(|manager| pool.try_round(manager, &[]));
    for round in futures_util::future::join_all(rounds).await {
        round.unwrap();
    }
    for name in ["box-1", "box-2"] {
        let holders = managers
            .iter()
            .filter(|manager| manager.tenure(&endpoint(name)).is_some());
        assert_eq!(holders.count(), 1, "{name}");
    }
    let by_the_calendar = managers.iter().filter(|manager| manager.has_calendar());
    assert_eq!(by_the_calendar.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_for_another_epoch_changes_nothing() {
    let pool = Pool::new();
    let (a, b) = (pool.manager("a"), pool.manager("b"));
    pool.round(&a).await;
    pool.round(&b).await;
    pool.live(&[&b], TERM * 2).await;
    b.cut_off(&Takeover {
        endpoint: endpoint("box-1"),
        from: "id-of-a".to_owned(),
        epoch: 1,
        write_deadline: WRITE,
    });
    assert!(from(&b) > Some(Instant::now() + WRITE * 2));
}

/// Fault 99: a lease that was damaged and discarded. Agents refuse an epoch below the highest that they have seen.
#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_taken_with_a_higher_epoch() {
    let pool = Pool::new();
    let (a, b) = (pool.manager("a"), pool.manager("b"));
    pool.round(&a).await;
    let before = a.tenure(&endpoint("box-1")).unwrap().epoch;
    let mut batch = Batch::new();
    batch.delete(Lease::KIND, "endpoint/box-1");
    pool.store.commit(batch).await.unwrap();
    pool.round(&b).await;
    assert!(b.tenure(&endpoint("box-1")).unwrap().epoch > before);
}

/// Fault 53: terms are counted on a clock that nobody sets; whatever the wall clock says, no lease is lost to it, and
/// none kept for it.
#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_moves_no_lease() {
    let pool = Pool::new();
    let (a, b) = (pool.manager("a"), pool.manager("b"));
    let round = async |manager: &Leases, hours: i64| {
        let wall = Timestamp::from_second(hours * 3600).unwrap();
        manager.round(&pool.kept, &BTreeSet::new, wall).await.unwrap();
    };
    round(&a, 0).await;
    for n in 0..20 {
        tokio::time::sleep(TERM / 3).await;
        round(&a, n % 3 - 1).await;
        round(&b, 1 - n % 3).await;
        assert_eq!(in_charge(&a), ["box-1", "box-2"]);
        assert!(in_charge(&b).is_empty());
    }
    // A is silent, and the other's clock is set back each time.
    for n in 0..8 {
        tokio::time::sleep(TERM / 3).await;
        round(&b, -n).await;
    }
    assert!(in_charge(&a).is_empty());
    assert_eq!(in_charge(&b), ["box-1", "box-2"]);
}

/// The endpoint is removed before the sessions of the manager before could be ended there: nobody is in charge of it,
/// and nobody tries on. Added again, it is not used before that is done.
#[tokio::test(start_paused = true)]
async fn what_is_removed_while_it_is_taken_over_is_let_go_of_and_its_sessions_are_remembered() {
    let mut pool = Pool::new();
    let (a, b) = (pool.manager("a"), pool.manager("b"));
    pool.round(&a).await;
    pool.live(&[&a, &b], TERM).await;
    // A dies.
    let mut taken = Vec::new();
    for _ in 0..6 {
        tokio::time::sleep(TERM / 3).await;
        pool.round(&b).await;
        taken.extend(b.to_cut_off());
    }
    assert_eq!(taken.len(), 2, "{taken:?}");
    let gone = taken
        .iter()
        .find(|taken| taken.endpoint == endpoint("box-1"))
        .unwrap();

    pool.kept = endpoints(&["box-2"]);
    pool.round(&b).await;
    b.abandon(gone, Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(in_charge(&b), ["box-2"]);
    for _ in 0..3 {
        pool.round(&b).await;
        assert!(b.to_cut_off().is_empty(), "nobody tries on");
    }
    // Twice is as good as once.
    b.abandon(gone, Timestamp::UNIX_EPOCH).await.unwrap();
    assert!(!b.keeps(&gone.endpoint) && b.keeps(&endpoint("box-2")));

    pool.kept = endpoints(&["box-1", "box-2"]);
    pool.round(&b).await;
    let again = b.to_cut_off();
    let [again] = &again[..] else { panic!("{again:?}") };
    assert_eq!((&again.endpoint, &again.from), (&gone.endpoint, &gone.from));
    assert_eq!(again.write_deadline, gone.write_deadline);
    assert!(again.epoch > gone.epoch);
    assert!(
        from(&b) > Some(Instant::now() + seconds(24 * 3600)),
        "nothing is sent before"
    );
    b.cut_off(again);
    assert_eq!(from(&b), Some(Instant::now() + WRITE));
}

/// Fault 75: a copied data directory has the same id, and neither deposes the other.
#[tokio::test(start_paused = true)]
async fn of_two_managers_with_copies_of_one_directory_the_second_is_told_of_the_first() {
    let pool = Pool::new();
    let a = pool.manager_at("a", "home", &[]);
    assert_eq!(a.living_copy(Timestamp::UNIX_EPOCH).await.unwrap(), None);
    pool.round(&a).await;
    let copy = pool.manager_at("copy", "home", &[]);
    let alive = [&a];
    let (found, ()) = tokio::join!(copy.living_copy(Timestamp::UNIX_EPOCH), pool.live(&alive, TERM));
    assert_eq!(found.unwrap().unwrap().who.id, "id-of-a");
    copy.give_back(Timestamp::UNIX_EPOCH).await.unwrap();
    pool.live(&[&a], TERM * 3).await;
    assert_eq!(in_charge(&a), ["box-1", "box-2"]);
}

/// Fault 75: one that goes on all the same, as after minutes without a processor, deposes nobody either.
#[tokio::test(start_paused = true)]
async fn managers_with_copies_of_one_directory_do_not_depose_each_other() {
    let pool = Pool::new();
    let (a, copy) = (
        pool.manager_at("a", "home", &[]),
        pool.manager_at("copy", "home", &[]),
    );
    pool.round(&a).await;
    let before = a.tenure(&endpoint("box-1")).unwrap().epoch;
    pool.live(&[&a, &copy], TERM * 10).await;
    assert_eq!(in_charge(&a), ["box-1", "box-2"]);
    assert!(in_charge(&copy).is_empty());
    assert_eq!(a.tenure(&endpoint("box-1")).unwrap().epoch, before);
}

/// Fault 75: the first of them is dead. What it sent is waited for, whatever its directory was called.
#[tokio::test(start_paused = true)]
async fn a_copy_of_the_directory_of_a_dead_manager_waits_for_what_that_one_sent() {
    let pool = Pool::new();
    let a = pool.manager_at("a", "home", &[]);
    pool.round(&a).await;
    let copy = pool.manager_at("copy", "home", &[]);
    let asked = Instant::now();
    assert_eq!(copy.living_copy(Timestamp::UNIX_EPOCH).await.unwrap(), None);
    assert!(asked.elapsed() > TERM, "it may have lived");
    pool.round(&copy).await;
    let taken_over = copy.to_cut_off();
    let before = taken_over.iter().map(|taken| taken.from.as_str());
    assert_eq!(before.collect::<Vec<_>>(), ["id-of-a", "id-of-a"]);
    assert!(from(&copy) > Some(Instant::now() + WRITE));
}

/// Fault 75: both are started at the same time.
#[tokio::test(start_paused = true)]
async fn of_two_copies_that_start_at_once_no_two_serve() {
    let pool = Pool::new();
    let (one, other) = (
        pool.manager_at("one", "home", &[]),
        pool.manager_at("other", "home", &[]),
    );
    let serve = async |manager: &Leases| {
        let found = manager.living_copy(Timestamp::UNIX_EPOCH).await.unwrap();
        if found.is_none() {
            pool.live(&[manager], TERM * 2).await;
        }
        found
    };
    let (found, found_too) = tokio::join!(serve(&one), serve(&other));
    assert!(found.is_some() || found_too.is_some());
}
