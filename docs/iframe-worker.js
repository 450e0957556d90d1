// Pages that are opened as files may not start a worker; the search then runs in a hidden frame of the page instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow, waiting = [];
      this.post = (data) => waiting.push(data);
      addEventListener("message", (event) => {
        if (event.source === inside) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      });
      inside.document.open();
      inside.document.write("<!doctype html><body></body>");
      inside.document.close();
      inside.importScripts = (...urls) => Promise.all(urls.map((each) => load(inside, each)));
      inside.postMessage = (data) => inside.parent.dispatchEvent(
        new MessageEvent("message", { data: structuredClone(data), source: inside }));
      load(inside, url).then(() => {
        this.post = (data) => inside.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) }));
        waiting.forEach(this.post);
      });
    }
    postMessage(data) { this.post(data); }
    terminate() {}
  };
}

function load(inside, url) {
  return new Promise((resolve, reject) => {
    const script = inside.document.createElement("script");
    script.src = url;
    script.onload = resolve;
    script.onerror = reject;
    inside.document.body.append(script);
  });
}
