//! What every step needs to do its work.

use crate::charge::Charge;
use crate::clock::Clock;
use crate::drivers::{Drivers, Metal};
use crate::hooks::{Hooks, Moment, Point};
use crate::live::Live;
use crate::locks::Locks;
use crate::note::Way;
use crate::options::Options;
use crate::pause::{Gate, Pass};
use poolwright_store::Store;
use std::sync::Arc;

pub(crate) struct Context {
    pub store: Arc<dyn Store>,
    pub metal: Metal,
    pub charge: Arc<dyn Charge>,
    pub clock: Arc<dyn Clock>,
    pub options: Options,
    pub locks: Locks,
    pub gate: Gate,
    hooks: Arc<dyn Hooks>,
}

impl Context {
    pub fn new(
        store: Arc<dyn Store>,
        drivers: Arc<dyn Drivers>,
        charge: Arc<dyn Charge>,
        clock: Arc<dyn Clock>,
        options: Options,
        hooks: Arc<dyn Hooks>,
    ) -> Self {
        Self {
            store,
            metal: Metal::new(drivers, Arc::clone(&charge), &options),
            charge,
            clock,
            options,
            locks: Locks::default(),
            gate: Gate::default(),
            hooks,
        }
    }

    /// For a step that wants to begin, or to send something.
    pub fn pass<'a>(&'a self, live: &'a Live, index: u32, way: Way) -> Pass<'a> {
        Pass {
            cx: self,
            live,
            index,
            forward: way == Way::Do,
        }
    }

    /// A moment at which tests cut in.
    pub async fn at(&self, live: &Live, step: Option<u32>, undoing: bool, moment: Moment) {
        let operation = live.id.clone();
        let point = Point {
            operation,
            step,
            undoing,
            moment,
        };
        self.hooks.at(point).await;
    }
}
