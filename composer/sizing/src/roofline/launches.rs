//! What the host does before the GPU can: eager PyTorch starts each operation, a server schedules each step. A small batch
//! waits for it.

use super::Shares;
use crate::constants::{Constants, Engine};
use crate::job::{Job, Method};
use crate::layer::Layers;
use crate::model::Model;

/// Seconds in which a host starts the operations of all layers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Launches {
    pub(super) forward: f64,
    pub(super) backward: f64,
    /// Of the optimizer.
    pub(super) step: f64,
    /// How many times as long slow and fast hosts take.
    pub(super) range: [f64; 2],
}

impl Launches {
    /// None where kernels are fused.
    pub fn of(model: &Model, job: &Job) -> Option<Launches> {
        let constants = Constants::builtin();
        let plain = Layers::plain(model);
        let layers = match job {
            Job::Inference(job) => {
                if !Engine::is_library(constants.serving.engine(&job.engine)?) {
                    let of_step = &Shares::builtin().server_step_s;
                    return Some(Launches {
                        forward: of_step.value,
                        range: of_step.range(),
                        ..Launches::default()
                    });
                }
                Layers {
                    caches: true,
                    ..plain
                }
            }
            Job::Training(job) => {
                constants.frameworks.named(&job.framework)?.replayed.as_ref()?;
                let full = job.method == Method::Full;
                Layers {
                    gradient: if full { 2.0 } else { 0.0 },
                    adapters: (!full).then(|| (&job.adapters, job.adapters.rank_for(model))),
                    ..plain
                }
            }
        };
        let graphs = layers.graphs(1.0);
        let launch = &Shares::builtin().launch_s;
        let each = launch.value;
        let mut all = Launches {
            range: launch.range(),
            ..Launches::default()
        };
        for (kind, graph) in &graphs {
            let (operations, trained) = graph.launches();
            let layers = model.order().filter(|of| of == kind).count();
            let [operations, trained] = [operations, trained].map(|each_of| each * (each_of * layers) as f64);
            all.forward += operations;
            // A gradient for each input, and for each trained weight.
            all.backward += operations + trained;
            all.step += trained;
        }
        Some(all)
    }

    /// On a host that takes so many times as long.
    pub(super) fn times(self, factor: f64) -> Launches {
        Launches {
            forward: factor * self.forward,
            backward: factor * self.backward,
            step: factor * self.step,
            ..self
        }
    }
}
