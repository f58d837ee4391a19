//! Many ask at once, and none waits for another's commit: what one has taken is nobody else's all the same.

use crate::stories::kit::{FOREVER, ME, Pool};
use futures_util::future::join_all;
use poolwright_emulator::rack::GpuIx;
use poolwright_model::id::{GpuId, HostId};
use poolwright_service::{Change, ErrorCode, How, OperationState, ServiceError};

impl Pool {
    /// All of these at once. Returns what came of each.
    async fn attach_all(&self, asked: &[(&GpuId, &HostId)]) -> Vec<Result<Change, ServiceError>> {
        let how = How::default();
        let asked = asked.iter().map(|(gpu, host)| {
            let (composer, how) = (self.composer(), &how);
            async move { composer.attach(std::slice::from_ref(*gpu), host, ME, how).await }
        });
        join_all(asked).await
    }

    async fn all_complete(&self, answers: &[Result<Change, ServiceError>]) -> usize {
        let begun = answers.iter().flatten();
        let begun: Vec<_> = begun
            .map(|change| change.operation.as_ref().unwrap().id.clone())
            .collect();
        for id in &begun {
            let ended = self.composer().wait(id, FOREVER).await.unwrap();
            assert_eq!(ended.state, OperationState::Completed, "{:?}", ended.error());
        }
        begun.len()
    }
}

#[tokio::test(start_paused = true)]
async fn one_gpu_that_many_ask_for_goes_to_one_of_them() {
    let pool = Pool::of("demo").await;
    let gpu = pool.gpu_ids(&["box-1/gpu-1"]).await.remove(0);
    let hosts = [pool.host_id("host-1").await, pool.host_id("host-2").await];
    let asked: Vec<_> = (0..12).map(|at| (&gpu, &hosts[at % 2])).collect();
    let answers = pool.attach_all(&asked).await;
    assert_eq!(pool.all_complete(&answers).await, 1);
    assert_eq!(pool.truth().len(), 1);
    for refused in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        assert_eq!(refused.code, ErrorCode::Conflict, "{refused}");
    }
    pool.all_is_well().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_many_are_attached_to_gets_what_it_has_room_for() {
    let pool = Pool::of("demo").await;
    let names: Vec<String> = (0..12)
        .map(|at| pool.emulation.rack().gpu_name(GpuIx(at)))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let gpus = pool.gpu_ids(&names).await;
    let host = pool.host_id("host-1").await;
    let asked: Vec<_> = gpus.iter().map(|gpu| (gpu, &host)).collect();
    // Of the port that leads to their box.
    let room = 4;
    let answers = pool.attach_all(&asked).await;
    assert_eq!(pool.all_complete(&answers).await, room);
    assert_eq!(pool.truth().len(), room);
    pool.all_is_well().await;
}
