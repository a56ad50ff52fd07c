//! Stands in for the crate `tokio`: tasks, channels, and one thread that runs them in turn.
//!
//! A future is polled again after all others have had their turn, so that nothing has to wake it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

type Task = Pin<Box<dyn Future<Output = ()>>>;

thread_local! {
    static TASKS: RefCell<Vec<Task>> = const { RefCell::new(Vec::new()) };
}

pub fn spawn(task: impl Future<Output = ()> + 'static) {
    TASKS.with(|tasks| tasks.borrow_mut().push(Box::pin(task)));
}

/// Give every task one turn; what has ended is dropped.
pub fn run_tasks() {
    let mut context = Context::from_waker(Waker::noop());
    let tasks = TASKS.with(|tasks| std::mem::take(&mut *tasks.borrow_mut()));
    let mut left: Vec<Task> = tasks
        .into_iter()
        .filter_map(|mut task| {
            task.as_mut()
                .poll(&mut context)
                .is_pending()
                .then_some(task)
        })
        .collect();
    TASKS.with(|tasks| tasks.borrow_mut().append(&mut left));
}

/// The value of a future, while the tasks run beside it.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    let mut future = Box::pin(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        run_tasks();
    }
}

pub mod sync {
    pub mod mpsc {
        use std::collections::VecDeque;
        use std::future::poll_fn;
        use std::sync::{Arc, Mutex};
        use std::task::Poll;

        #[derive(Debug)]
        pub struct UnboundedSender<T>(Arc<Mutex<VecDeque<T>>>);

        #[derive(Debug)]
        pub struct UnboundedReceiver<T>(Arc<Mutex<VecDeque<T>>>);

        impl<T> Clone for UnboundedSender<T> {
            fn clone(&self) -> Self {
                UnboundedSender(self.0.clone())
            }
        }

        pub fn unbounded_channel<T>() -> (UnboundedSender<T>, UnboundedReceiver<T>) {
            let queue = Arc::new(Mutex::new(VecDeque::new()));
            (UnboundedSender(queue.clone()), UnboundedReceiver(queue))
        }

        impl<T> UnboundedSender<T> {
            /// # Errors
            /// None where the receiver is there; it is gone after a panic of its task.
            pub fn send(&self, value: T) -> Result<(), T> {
                if Arc::strong_count(&self.0) == 1 {
                    return Err(value);
                }
                self.0.lock().expect("one thread").push_back(value);
                Ok(())
            }
        }

        impl<T> UnboundedReceiver<T> {
            /// The next value, or `None` once no sender is left.
            pub async fn recv(&mut self) -> Option<T> {
                poll_fn(|_| {
                    let next = self.0.lock().expect("one thread").pop_front();
                    if next.is_some() || Arc::strong_count(&self.0) == 1 {
                        Poll::Ready(next)
                    } else {
                        Poll::Pending
                    }
                })
                .await
            }
        }
    }

    pub mod oneshot {
        use std::future::Future;
        use std::pin::Pin;
        use std::sync::{Arc, Mutex};
        use std::task::{Context, Poll};

        #[derive(Debug)]
        pub struct Sender<T>(Arc<Mutex<Option<T>>>);

        #[derive(Debug)]
        pub struct Receiver<T>(Arc<Mutex<Option<T>>>);

        pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
            let place = Arc::new(Mutex::new(None));
            (Sender(place.clone()), Receiver(place))
        }

        impl<T> Sender<T> {
            /// # Errors
            /// The receiver is gone.
            pub fn send(self, value: T) -> Result<(), T> {
                if Arc::strong_count(&self.0) == 1 {
                    return Err(value);
                }
                *self.0.lock().expect("one thread") = Some(value);
                Ok(())
            }
        }

        impl<T> Future for Receiver<T> {
            type Output = Result<T, &'static str>;

            fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
                if let Some(value) = self.0.lock().expect("one thread").take() {
                    return Poll::Ready(Ok(value));
                }
                if Arc::strong_count(&self.0) == 1 {
                    return Poll::Ready(Err("channel closed"));
                }
                Poll::Pending
            }
        }
    }
}
