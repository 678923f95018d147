(function(){
'use strict';
var r=document.documentElement,b=document.getElementById('theme'),m=document.getElementById('map');
function dark(){return r.dataset.theme?r.dataset.theme==='dark':matchMedia('(prefers-color-scheme: dark)').matches}
function name(){b.textContent=dark()?'Light':'Dark'}
b.hidden=false;name();b.onclick=function(){r.dataset.theme=dark()?'light':'dark';name()};
if(!m)return;
var D=JSON.parse(document.getElementById('data').textContent),out=document.getElementById('read'),cur=document.getElementById('cursor');
var q=D.q.map(function(s){return Uint8Array.from(atob(s),function(c){return c.charCodeAt(0)})}),B=D.box,x=0,y=D.h>>1,band=0;
function says(v){return v===0?'within the '+D.over:v===1?'not compared':(Math.pow(10,D.low+(v-2)/D.n*(D.d-D.low))).toPrecision(2)+'× '+D.over}
function where(){for(var i=0;i<D.p.length;i++){var p=D.p[i];if(x>=p[1]&&x<p[2]){var t=(x-p[1])*D.k;
 return 'prompt '+p[0]+', '+(D.k>1?'tokens '+t+' to '+(t+D.k-1):'token '+t)}}return 'column '+x}
function show(){var k=D.b[y],w=B[2]/D.w,h=B[3]/D.h;cur.style.display='';
 cur.setAttribute('x',B[0]+x*w-1);cur.setAttribute('y',B[1]+band*B[4]+y*h-1);cur.setAttribute('width',w+2);cur.setAttribute('height',h+2);
 out.textContent='boundary '+k+(k?' (layer '+(k-1)+')':' (embeddings)')+', '+where()+': '+says(q[0][y*D.w+x])+(q[1]?' as claimed, '+says(q[1][y*D.w+x])+' undone':'')}
m.tabIndex=0;out.textContent='Point at the map, or focus it and use the arrow keys.';
m.addEventListener('mousemove',function(e){var p=m.createSVGPoint();p.x=e.clientX;p.y=e.clientY;p=p.matrixTransform(m.getScreenCTM().inverse());
 var k=q[1]&&p.y>=B[1]+B[4]?1:0,i=Math.floor((p.x-B[0])/B[2]*D.w),j=Math.floor((p.y-B[1]-k*B[4])/B[3]*D.h);
 if(i>=0&&i<D.w&&j>=0&&j<D.h){x=i;y=j;band=k;show()}});
m.addEventListener('keydown',function(e){var s={ArrowLeft:[-1,0],ArrowRight:[1,0],ArrowUp:[0,-1],ArrowDown:[0,1],Home:[-D.w,0],End:[D.w,0],PageUp:[0,-D.h],PageDown:[0,D.h]}[e.key];
 if(!s)return;e.preventDefault();x=Math.min(D.w-1,Math.max(0,x+s[0]));y=Math.min(D.h-1,Math.max(0,y+s[1]));show()});
m.addEventListener('focus',show);
})();
