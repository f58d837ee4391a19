//! Another password at an endpoint: cut off at every moment, refused, not answered; and never too many wrong logins.

use crate::stories::kit::Pool;
use crate::stories::managers::manager_over;
use async_trait::async_trait;
use poolwright_driver::{
    Bound, ControlPoint, DriverError, ErrorKind, Fabric, GpuIdentity, Observation, Progress, ResetSeen,
};
use poolwright_emulator::Rack;
use poolwright_model::id::ControlEndpointId;
use poolwright_service::endpoint::{Connected, Connector, EndpointSpec, Password, Standing};
use poolwright_service::{ClusterKey, Composer, ErrorCode, Keys};
use poolwright_store::SqliteStore;
use poolwright_tests::torture::gate::{Gate, GatedStore};
use poolwright_tests::torture::line::spec_of;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

const BOX: &str = "box-1";
const FIRST: &str = "the first password";

/// What a service does when it is asked to take a password.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    It,
    /// And the answer is lost.
    ItSilently,
    /// It says nothing, and takes none.
    Nothing,
    /// It takes what nobody asked for.
    Another,
    Refuses,
}

/// One service: its password, and who was let in.
struct Door {
    password: String,
    takes: Takes,
    answers: bool,
    /// Once it is asked to take a password.
    falls_silent: bool,
    refused: u32,
}

type Shared = Arc<Mutex<Door>>;

/// The way to it, of one manager.
struct Guarded(Arc<dyn Connector>, Shared, Arc<Gate>);

struct GuardedFabric(Arc<dyn Fabric>, Shared, Arc<Gate>);

fn door(shared: &Shared) -> MutexGuard<'_, Door> {
    shared.lock().unwrap()
}

#[async_trait]
impl Connector for Guarded {
    async fn connect(&self, spec: &EndpointSpec) -> Result<Connected, DriverError> {
        self.2.pass().await;
        {
            let mut door = door(&self.1);
            if !door.answers {
                return Err(DriverError::no_effect("nobody answers"));
            }
            let password = spec.password.as_ref().map(Password::reveal);
            if password != Some(door.password.as_str()) {
                door.refused += 1;
                return Err(DriverError::new(ErrorKind::CredentialsRefused, "401"));
            }
        }
        self.2.pass().await;
        let connected = self.0.connect(spec).await?;
        let fabric = Arc::new(GuardedFabric(
            connected.fabric.clone(),
            self.1.clone(),
            self.2.clone(),
        ));
        Ok(Connected { fabric, ..connected })
    }
}

#[async_trait]
impl Fabric for GuardedFabric {
    fn endpoint(&self) -> &ControlEndpointId {
        self.0.endpoint()
    }
    async fn observe(&self, progress: &dyn Progress) -> Result<Observation, DriverError> {
        self.0.observe(progress).await
    }
    async fn bind(&self, unit: &ControlPoint, port: &ControlPoint, d: Duration) -> Result<(), DriverError> {
        self.0.bind(unit, port, d).await
    }
    async fn unbind(&self, unit: &ControlPoint, port: &ControlPoint, d: Duration) -> Result<(), DriverError> {
        self.0.unbind(unit, port, d).await
    }
    async fn bound(&self, unit: &ControlPoint, d: Duration) -> Result<Bound, DriverError> {
        self.0.bound(unit, d).await
    }
    async fn identify(&self, unit: &ControlPoint, d: Duration) -> Result<Vec<GpuIdentity>, DriverError> {
        self.0.identify(unit, d).await
    }
    async fn reset(&self, unit: &ControlPoint, d: Duration) -> Result<ResetSeen, DriverError> {
        self.0.reset(unit, d).await
    }
    async fn change_password(&self, username: &str, new: &str, _: Duration) -> Result<(), DriverError> {
        assert_eq!(username, "pool");
        self.2.pass().await;
        let unknown = Err(DriverError::unknown("no answer"));
        let answer = {
            let mut door = door(&self.1);
            door.answers = !door.falls_silent;
            match door.takes {
                Takes::It => {
                    door.password = new.to_owned();
                    Ok(())
                }
                Takes::ItSilently => {
                    door.password = new.to_owned();
                    unknown
                }
                Takes::Another => {
                    door.password = "another".to_owned();
                    unknown
                }
                Takes::Nothing => unknown,
                Takes::Refuses => Err(DriverError::no_effect("too simple")),
            }
        };
        self.2.pass().await;
        answer
    }
}

struct Scene {
    pool: Pool,
    door: Shared,
    /// Of the manager that there is.
    gate: Arc<Gate>,
}

fn id() -> ControlEndpointId {
    BOX.parse().unwrap()
}

impl Scene {
    async fn new(takes: Takes) -> Self {
        let mut pool = Pool::bare(
            Rack::builtin("zones").unwrap(),
            Arc::new(SqliteStore::in_memory().unwrap()),
        );
        pool.options.keys = Keys {
            own: Some(ClusterKey::new(&"k".repeat(ClusterKey::SHORTEST)).unwrap()),
            cluster: None,
        };
        let door = Arc::new(Mutex::new(Door {
            password: FIRST.to_owned(),
            takes,
            answers: true,
            falls_silent: false,
            refused: 0,
        }));
        let gate = Gate::new(1, None);
        let mut scene = Self { pool, door, gate };
        scene.open().await;
        let spec = EndpointSpec {
            username: Some("pool".to_owned()),
            password: Some(Password::new(FIRST)),
            ..spec_of(BOX)
        };
        let composer = scene.pool.composer();
        composer.add_endpoint(spec, Standing::Adopted).await.unwrap();
        scene
    }

    async fn open(&mut self) {
        self.gate = Gate::new(1, None);
        let line = Guarded(self.pool.line(), self.door.clone(), self.gate.clone());
        let store = GatedStore {
            gate: self.gate.clone(),
            disk: Arc::default(),
            store: self.pool.store.clone(),
        };
        let (clock, options) = (self.pool.managers_clock.clone(), self.pool.options.clone());
        let composer = Composer::open(Arc::new(store), Arc::new(line), clock, options).await;
        self.pool.take_over(composer.unwrap());
    }

    async fn restart(&mut self) {
        self.gate.die();
        self.pool.crash().await;
        self.open().await;
    }

    async fn rotate(&self) -> Result<(), ErrorCode> {
        let rotated = self.pool.composer().rotate_password(&id()).await;
        rotated.map(drop).map_err(|error| {
            assert!(error.hint.is_some(), "what to do next: {error}");
            error.code
        })
    }

    /// What is kept opens the door, which never heard a wrong password meanwhile but so often.
    async fn is_well(&self, at_most_refused: u32, when: &str) {
        let tested = self.pool.composer().test_endpoint(&id()).await;
        tested.unwrap_or_else(|error| panic!("{when}: {error}"));
        let refused = door(&self.door).refused;
        assert!(refused <= at_most_refused, "{when}: {refused} wrong logins");
    }
}

/// Fault 37: the password is changed by the manager itself, which dies at any moment of it, and goes on.
#[tokio::test(start_paused = true)]
async fn a_change_that_is_cut_off_at_any_moment_is_carried_on() {
    for takes in [Takes::It, Takes::ItSilently] {
        for n in 0.. {
            let mut scene = Scene::new(takes).await;
            scene.gate.dies_in(Some(n));
            let over = tokio::select! {
                rotated = scene.rotate() => rotated.is_ok(),
                () = scene.gate.died() => false,
            };
            let when = format!("it died before call {n}");
            scene.restart().await;
            if over {
                assert_ne!(door(&scene.door).password, FIRST);
                scene.is_well(0, &when).await;
                assert!(n > 10, "it calls more often than {n} times");
                break;
            }
            scene.rotate().await.unwrap();
            assert_ne!(door(&scene.door).password, FIRST, "{when}");
            scene.is_well(1, &when).await;
        }
    }
}

/// Nobody asks again: the manager goes on by itself.
#[tokio::test(start_paused = true)]
async fn what_was_left_half_done_is_carried_on_by_the_clock() {
    let mut scene = Scene::new(Takes::ItSilently).await;
    // The service took it, and then says nothing.
    door(&scene.door).falls_silent = true;
    assert_eq!(scene.rotate().await, Err(ErrorCode::Unavailable));
    scene.restart().await;
    // With the old password nobody knocks meanwhile.
    door(&scene.door).answers = true;
    let refused = scene.pool.composer().test_endpoint(&id()).await.unwrap_err();
    assert!(
        refused.hint.unwrap().contains("rotate-password"),
        "{}",
        refused.message
    );
    assert_eq!(door(&scene.door).refused, 0);

    let clockwork = crate::stories::calendar::Clockwork::of(&scene.pool);
    scene
        .pool
        .until("it can be logged in to again", async || {
            scene.pool.composer().test_endpoint(&id()).await.is_ok()
        })
        .await;
    assert_eq!(door(&scene.door).refused, 0);
    clockwork.stop().await;
}

/// Fault 37: three wrong logins in all, however often it is asked and whoever starts again.
#[tokio::test(start_paused = true)]
async fn after_three_refusals_nothing_more_is_sent() {
    for takes in [Takes::Nothing, Takes::Another] {
        let mut scene = Scene::new(takes).await;
        for _ in 0..3 {
            assert_eq!(scene.rotate().await, Err(ErrorCode::CredentialsRefused));
            scene.restart().await;
            scene.pool.composer().test_endpoint(&id()).await.unwrap_err();
        }
        assert_eq!(door(&scene.door).refused, 3);
        // Somebody sets one at the service, and tells it.
        door(&scene.door).password = "set by hand".to_owned();
        let credentials = serde_json::from_value(serde_json::json!({"password": "set by hand"})).unwrap();
        scene
            .pool
            .composer()
            .set_credentials(&id(), credentials)
            .await
            .unwrap();
        scene.is_well(3, "told").await;
        door(&scene.door).takes = Takes::It;
        scene.rotate().await.unwrap();
        scene.is_well(3, "and once more").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_refuses_the_new_password_keeps_the_old() {
    let mut scene = Scene::new(Takes::Refuses).await;
    let refused = scene.pool.composer().rotate_password(&id()).await.unwrap_err();
    assert_eq!(refused.message, "too simple");
    scene.restart().await;
    assert_eq!(door(&scene.door).password, FIRST);
    scene.is_well(0, "nothing was changed").await;
    // The next try is another password.
    door(&scene.door).takes = Takes::It;
    scene.rotate().await.unwrap();
    scene.is_well(0, "another try").await;
}

/// Of two managers of one store only the one that is in charge changes the password; the other says who that is, and does it
/// once that one is gone.
#[tokio::test(start_paused = true)]
async fn of_two_managers_only_the_one_in_charge_changes_it() {
    let mut scene = Scene::new(Takes::It).await;
    scene.pool.composer().close().await;
    scene.pool.crash().await;
    let line = || Arc::new(Guarded(scene.pool.line(), scene.door.clone(), Gate::new(1, None)));
    let first = manager_over(&scene.pool, "first", line()).await;
    let second = manager_over(&scene.pool, "second", line()).await;
    let id = id();
    let (by_first, by_second) = tokio::join!(
        first.composer.rotate_password(&id),
        second.composer.rotate_password(&id)
    );
    by_first.unwrap();
    let refused = by_second.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    assert!(
        refused.message.contains("manager first holds the lease") && refused.hint.is_some(),
        "{refused}"
    );
    let changed = door(&scene.door).password.clone();
    assert_ne!(changed, FIRST);

    first.composer.close().await;
    scene
        .pool
        .until("the other one is in charge", async || {
            second.composer.rotate_password(&id).await.is_ok()
        })
        .await;
    second.composer.test_endpoint(&id).await.unwrap();
    second.composer.close().await;
    let door = door(&scene.door);
    assert_ne!(door.password, changed);
    assert_eq!(door.refused, 0);
}
