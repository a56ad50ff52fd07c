// Browsers start no Worker for a page that was opened as a file, and the search runs in one.  There it
// gets a hidden frame in place of a thread: the same script, which is sent messages and sends them back.
if (window.location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(script) {
      super();
      const address = new URL(script, document.baseURI).href;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((resolve, reject) => {
        this.frame.addEventListener("load", () => this.start(address).then(resolve, reject));
      });
      this.ready.catch((error) => {
        const event = new ErrorEvent("error", { message: String(error) });
        this.dispatchEvent(event);
        this.onerror?.(event);
      });
      this.frame.srcdoc = "<!doctype html><title>search</title>";
      document.body.append(this.frame);
    }

    start(address) {
      const inside = this.frame.contentWindow;
      // The script answers with postMessage, as in a thread; in a frame that would go to itself.
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };
      const load = (url) => new Promise((resolve, reject) => {
        const element = inside.document.createElement("script");
        element.src = new URL(url, address).href;
        element.onload = resolve;
        element.onerror = () => reject(new Error(`${url} cannot be loaded`));
        inside.document.head.append(element);
      });
      // A thread waits for these; here the caller awaits what it is given.
      inside.importScripts = (...urls) => urls.reduce(
        (before, url) => before.then(() => load(url)), Promise.resolve());
      return load(address);
    }

    postMessage(data) {
      this.ready.then(() => {
        const inside = this.frame.contentWindow;
        inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      }, () => {});
    }

    terminate() {
      this.frame.remove();
    }
  };
}
